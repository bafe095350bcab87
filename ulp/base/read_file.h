// Whole files in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include "ulp/base/export.h"

namespace ulp {

/// The bytes of a file. Throws FileError `[where]` naming the path for one that is no regular file, has more than `most` bytes, or
/// cannot be read to its end.
ULP_API std::string read_file(const char* where, const std::filesystem::path& path,
                              uintmax_t most = std::numeric_limits<int64_t>::max());

}  // namespace ulp
