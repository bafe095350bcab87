// Which elements of a tensor share a scale and a zero point.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"

namespace ulp::quant {

/// One scale and zero point for the whole tensor.
struct PerTensor {
  bool operator==(const PerTensor&) const = default;
};
/// One scale and zero point for each index of dimension `axis`.
struct PerChannel {
  int64_t axis = 0;
  bool operator==(const PerChannel&) const = default;
};
/// One for each run of `size` neighbours along the last dimension (the inputs of a linear weight). Where the
/// dimension is no multiple of `size`, the last group of each row is shorter.
struct PerGroup {
  int64_t size = 32;
  bool operator==(const PerGroup&) const = default;
};
/// One for each row: every index of all dimensions but the last.
struct PerToken {
  bool operator==(const PerToken&) const = default;
};
/// One for each block of `rows` x `columns` of the last two dimensions; blocks at the edges may be smaller.
struct PerBlock {
  int64_t rows = 32, columns = 32;
  bool operator==(const PerBlock&) const = default;
};
/// Which elements share a scale.
using Granularity = std::variant<PerTensor, PerChannel, PerGroup, PerToken, PerBlock>;

/// Throws ulp::Error for a negative axis, or a size below 1.
ULP_API void validate(const Granularity& granularity);
/// "per tensor", "per channel 0", "per group 32", "per token", "per block 2x4".
ULP_API std::string to_string(const Granularity& granularity);
/// From "tensor", "channel:0", "group:32", "token" or "block:2x4". Throws ulp::Error for other text.
ULP_API Granularity parse_granularity(const std::string& text);
/// As a field of a recipe: "per_tensor", {"per_channel": axis}, {"per_group": size}, "per_token" or
/// {"per_block": [rows, columns]}.
void visit_granularity(FieldVisitor& visit, const FieldInfo& info, Granularity& granularity);

/// Why a tensor of this shape has no such parts ("expected a tensor with a dimension 2, got shape [3, 2]"),
/// or an empty string.
ULP_API std::string mismatch(const Granularity& granularity, at::IntArrayRef shape);

/// The shape of scale and zero point for a tensor of this shape: [1] per tensor, [C] per channel,
/// [..., ceil(K / size)] per group, [...] without the last dimension per token,
/// [..., ceil(R / rows), ceil(K / columns)] per block. Throws ulp::Error for a shape that has no such parts.
ULP_API std::vector<int64_t> scale_shape(const Granularity& granularity, at::IntArrayRef shape);

/// The tensor as [scales, elements], one row for each scale in the order of scale_shape(); short groups and
/// blocks are filled with 0, which every scheme represents. Differentiable. Errors as scale_shape().
ULP_API at::Tensor to_rows(const at::Tensor& x, const Granularity& granularity);
/// The inverse of to_rows() for a tensor that had this shape.
ULP_API at::Tensor from_rows(const at::Tensor& rows, const Granularity& granularity, at::IntArrayRef shape);

}  // namespace ulp::quant
