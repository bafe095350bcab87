// Tensors and models in safetensors files.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ulp/base/export.h"

namespace torch::nn {
class Module;
}

namespace ulp::io {

/// Tensors in the order of the file.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
/// The string metadata of a file.
using Metadata = std::map<std::string, std::string>;

/// The contents of a file. Tensors own their memory; names that were one tensor when saved are one tensor
/// again.
struct ULP_API TensorFile {
  NamedTensors tensors;
  Metadata metadata;

  /// Null when there is none of that name.
  const at::Tensor* find(const std::string& name) const;
};

/// Writes atomically, widest dtype first, so that every tensor is aligned for its dtype. A tensor that
/// appears under several names (same memory, shape and strides) is stored once; the metadata entry
/// "ulp.aliases" tells the other names. Throws Error on an undefined or sparse tensor, a dtype the format
/// lacks, or what write_safetensors refuses.
ULP_API void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                          const Metadata& metadata = {});

/// Reads a whole file. Throws FileError where SafetensorsFile does, on a dtype LibTorch lacks, and on bad
/// aliases.
ULP_API TensorFile load_tensors(const std::filesystem::path& path);

/// The metadata alone, without reading tensors.
ULP_API Metadata load_metadata(const std::filesystem::path& path);

/// Parameters and buffers by name, parameters first, each in the order the module lists them.
ULP_API NamedTensors named_state(const torch::nn::Module& model);

/// Writes named_state(model).
ULP_API void save_model(const std::filesystem::path& path, const torch::nn::Module& model,
                        const Metadata& metadata = {});

/// How a file and a model differ, by name.
struct ULP_API LoadReport {
  std::vector<std::string> missing;     ///< in the model, not in the file
  std::vector<std::string> unexpected;  ///< in the file, not in the model
  std::vector<std::string>
      mismatched;  ///< another shape, or another kind of dtype: "fc.weight: (10, 64), got (10, 32)"

  bool ok() const { return missing.empty() && unexpected.empty() && mismatched.empty(); }
  /// One sentence; empty when ok().
  std::string text() const;
};

/// Copies the file's tensors into the model's, converting between floating dtypes (and counters from any);
/// reads a checkpoint's model part too, and the parameters and buffers of a file of save_graph(), whose constants are no state of
/// a module. With `strict` any difference throws FileError and the model is
/// untouched; without, what fits is copied and the rest is reported.
ULP_API LoadReport load_model(const std::filesystem::path& path, torch::nn::Module& model,
                              bool strict = true);

/// load_model() for tensors already read; `source` words the error.
ULP_API LoadReport assign_state(torch::nn::Module& model, const NamedTensors& tensors, bool strict,
                                const std::string& source);

}  // namespace ulp::io
