// Several nodes that are one operator of LibTorch: layers, attention, activations. Each function looks from
// the last of the nodes back, and gives an undefined tensor where it finds something else. What the nodes
// before had computed is read by nobody then, and leaves the graph.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

/// The weight [out, in] of a linear layer, and what is added to each number of its rows [out].
struct LinearWeight {
  at::Tensor weight, offset = {};
  bool defined() const { return weight.defined(); }
  int64_t rows() const { return weight.size(0); }
};
/// Input `i`, a matrix [in, out] to the right of a product, as such a weight: of a transpose its input, of a tensor of the file, or its
/// codes, the transposed one. Undefined for what is no such weight.
LinearWeight linear_weight(Call& call, size_t i);
/// The same of a matrix [out, in].
LinearWeight turned_weight(Call& call, size_t i);
at::Tensor linear(const at::Tensor& x, const LinearWeight& weight,
                  const std::optional<at::Tensor>& bias = std::nullopt);
/// x W + b of a sum.
at::Tensor linear_of(Call& add);
/// softmax(q k^T scale + mask) v of the last product, or with a mask of bools.
at::Tensor attention_of(Call& product);
/// SiLU, hardswish, mish and GELU of a product.
at::Tensor activation_of(Call& product);
/// The sign of a choice between 1 where x >= 0, and -1.
at::Tensor sign_of(Call& choice);
/// (x - mean) / sqrt(var + eps) w + b of a sum.
at::Tensor layer_norm_of(Call& add);

/// A product as its factors: numbers as one, and values.
struct Factors {
  double number = 1;
  std::vector<std::string> values;
};
/// Follows Mul, and Div by numbers, back from a value.
Factors factors_of(Call& call, const std::string& value);
/// The node of this op that makes a value, or null.
const FileNode* maker_of(const Call& call, const std::string& value, std::string_view op);

}  // namespace ulp::exchange::onnx_import
