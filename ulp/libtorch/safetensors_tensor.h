// LibTorch's tensors and the entries of safetensors files (base/safetensors.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/safetensors.h"

namespace ulp::libtorch {

/// The format's word for an element type; null where it has none.
ULP_API const char* safetensors_word(at::ScalarType type);

/// What makes two tensors the same one: memory, dtype, shape, strides, and whether they are read conjugated
/// and negated.
using TensorIdentity =
    std::tuple<const void*, at::ScalarType, std::vector<int64_t>, std::vector<int64_t>, bool, bool>;
/// Of a dense tensor with elements.
ULP_API TensorIdentity identity_of(const at::Tensor& tensor);

/// Throws ulp::Error `[where] ...` with the name unless it is UTF-8.
ULP_API void check_name(const char* where, const std::string& name);

/// A tensor with memory of its own. Throws FileError `[where] 'name' in 'path' ...` for a dtype that LibTorch
/// lacks, more than 64 dimensions, and booleans other than 0 and 1.
ULP_API at::Tensor to_tensor(const char* where, const TensorEntry& entry, const std::filesystem::path& path);

}  // namespace ulp::libtorch
