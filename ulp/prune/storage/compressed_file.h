// A whole model in one small file, bit for bit.
//
//   save_compressed("net.safetensors", *model);
//   CompressedFile file = load_compressed("net.safetensors");     // names and dense tensors
//
// The file is a safetensors container, so other tools list it. An entry of dtype U8 is a coded tensor
// (coded_tensor.h); any other entry is a tensor that is smallest as it is. The metadata "ulp.compressed" is
// {"version": 1, "crc32": checksum of names, dtypes, shapes, bytes and the rest of the metadata, "aliases":
// {name: the name of the same tensor}}.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/prune/storage/accounting.h"
#include "ulp/prune/storage/encoded_tensor.h"

namespace torch::nn {
class Module;
}

namespace ulp::prune {

/// Tensors by name, in some order: what ulp::io::named_state() gives and assign_state() takes.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// The contents of a compressed file.
struct ULP_API CompressedFile {
  NamedTensors tensors;  ///< dense, on the CPU; names that were one tensor when saved are one again
  std::map<std::string, std::string> metadata;  ///< what the user stored beside
  Accounting accounting;

  /// Null when there is none of that name.
  const at::Tensor* find(const std::string& name) const;
};

/// Writes atomically, each tensor in its smallest form. A tensor under several names (same memory, shape,
/// strides, conjugate and negative bits) is stored once. Throws Error for what encode_tensor() refuses, names
/// that are duplicate or not UTF-8, and the metadata key "ulp.compressed". The accounting's sum is the size of
/// the file; where its dense_bytes() exceed most_loaded_bytes(), load_compressed() must be told to take them.
ULP_API Accounting save_compressed(const std::filesystem::path& path, const NamedTensors& tensors,
                                   const CodeOptions& options = {},
                                   const std::map<std::string, std::string>& metadata = {});
/// Saves the parameters and buffers of a module.
ULP_API Accounting save_compressed(const std::filesystem::path& path, const torch::nn::Module& model,
                                   const CodeOptions& options = {},
                                   const std::map<std::string, std::string>& metadata = {});

/// The bytes of tensors that load_compressed() takes from a file of so many bytes unless told otherwise: 256
/// MiB and 1024 times the file's.
constexpr uint64_t most_loaded_bytes(uint64_t file_bytes) {
  return (uint64_t{256} << 20) + 1024 * file_bytes;
}

/// Reads a whole file. Throws FileError for a file that is damaged, truncated, hostile, of another kind or of
/// a newer version, and for one whose tensors take more than `most_bytes` together (0: most_loaded_bytes()).
ULP_API CompressedFile load_compressed(const std::filesystem::path& path, uint64_t most_bytes = 0);

/// The accounting alone, in little memory whatever the tensors take. Throws FileError as load_compressed()
/// does, but for a limit and for what is wrong inside of a tensor's codes.
ULP_API Accounting load_accounting(const std::filesystem::path& path);

}  // namespace ulp::prune
