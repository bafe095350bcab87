// NumPy's files: one array (.npy), or several by name in a zip archive (.npz).
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

#include "ulp/base/export.h"

namespace ulp::io {

/// The array as a dense tensor of its own type and shape: bool, u1, i1, i2, i4, i8, f2, f4, f8,
/// little-endian, in C or Fortran order. Throws FileError for a file that is missing, damaged, truncated,
/// longer than its header says, or holds another type: objects, records, text, complex and big-endian numbers
/// are refused by name. Format: numpy.lib.format, versions 1 to 3.
ULP_API at::Tensor load_npy(const std::filesystem::path& path);

/// Every array of the archive by its name without ".npy", stored or compressed (numpy.savez and
/// numpy.savez_compressed). Throws FileError as load_npy does, naming the entry, and for archives that are
/// damaged, encrypted, hold anything else than arrays, or promise more bytes than they can hold.
ULP_API std::map<std::string, at::Tensor> load_npz(const std::filesystem::path& path);

}  // namespace ulp::io
