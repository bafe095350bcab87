#include "ulp/lower/binary_graph.h"

#include <torch/library.h>
#include <torch/types.h>

#include "ulp/base/error.h"

namespace ulp::lowering {

namespace {

using at::Tensor;

constexpr const char* kBinaryGraphWhere = "lower.binary_graph";  // graphs of files may call these ops, too

/// One number a channel, to be combined with dimension `dim` of x.
Tensor along(const Tensor& values, const Tensor& x, int64_t dim) {
  if (dim < 0 || dim >= x.dim())
    fail(kBinaryGraphWhere, "expected a dimension of ", x.sizes(), ", got ", dim);
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[static_cast<size_t>(dim)] = -1;
  return values.view(shape);
}

Tensor signs_where(const Tensor& positive, const Tensor& flip) {
  return at::where(positive.logical_xor(flip), at::ones({}, at::kFloat), at::full({}, -1, at::kFloat));
}

Tensor threshold_signs(const Tensor& x, const Tensor& threshold, const Tensor& flip, int64_t dim) {
  return signs_where(x >= along(threshold, x, dim), along(flip, x, dim));
}

Tensor sums(const Tensor& signs, const Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding,
            at::IntArrayRef dilation, bool padding_one) {
  if (padding.size() != 2) fail(kBinaryGraphWhere, "expected a padding of two numbers, got ", padding);
  if (!padding_one) return at::conv2d(signs, weight, {}, stride, padding, dilation);
  const Tensor padded = at::constant_pad_nd(signs, {padding[1], padding[1], padding[0], padding[0]}, 1);
  return at::conv2d(padded, weight, {}, stride, at::IntArrayRef({0, 0}), dilation);
}

Tensor binary_conv2d(const Tensor& signs, const Tensor& weight, const Tensor& scale,
                     const std::optional<Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding,
                     at::IntArrayRef dilation, bool padding_one) {
  const Tensor y = sums(signs, weight, stride, padding, dilation, padding_one) *
                   (scale.dim() == 1 ? scale.view({-1, 1, 1}) : scale);
  return bias ? y + bias->view({-1, 1, 1}) : y;
}

Tensor binary_conv2d_signs(const Tensor& signs, const Tensor& weight, const Tensor& threshold,
                           const Tensor& flip, at::IntArrayRef stride, at::IntArrayRef padding,
                           at::IntArrayRef dilation, bool padding_one) {
  return threshold_signs(sums(signs, weight, stride, padding, dilation, padding_one), threshold, flip, 1);
}

Tensor binary_linear(const Tensor& signs, const Tensor& weight, const Tensor& scale,
                     const std::optional<Tensor>& bias) {
  const Tensor y = at::linear(signs, weight) * scale;
  return bias ? y + *bias : y;
}

Tensor binary_linear_signs(const Tensor& signs, const Tensor& weight, const Tensor& threshold,
                           const Tensor& flip) {
  const Tensor y = at::linear(signs, weight);
  return threshold_signs(y, threshold, flip, y.dim() - 1);
}

}  // namespace

bool is_binary_layer(const graph::Node& node) {
  return node.is("ulp::binary_conv2d") || node.is("ulp::binary_linear");
}

bool is_binary_signs(const graph::Node& node) {
  return node.is("ulp::binary_conv2d_signs") || node.is("ulp::binary_linear_signs");
}

bool makes_bits(const graph::Node& node) {
  return node.is("ulp::binarize") || node.is("ulp::threshold_signs") || is_binary_signs(node);
}

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def("threshold_signs(Tensor x, Tensor threshold, Tensor flip, int dim) -> Tensor");
  m.def(
      "binary_conv2d(Tensor signs, Tensor weight, Tensor scale, Tensor? bias, int[] stride, int[] padding, "
      "int[] dilation, bool padding_one) -> Tensor");
  m.def(
      "binary_conv2d_signs(Tensor signs, Tensor weight, Tensor threshold, Tensor flip, int[] stride, "
      "int[] padding, int[] dilation, bool padding_one) -> Tensor");
  m.def("binary_linear(Tensor signs, Tensor weight, Tensor scale, Tensor? bias) -> Tensor");
  m.def("binary_linear_signs(Tensor signs, Tensor weight, Tensor threshold, Tensor flip) -> Tensor");
}

TORCH_LIBRARY_IMPL(ulp, CompositeImplicitAutograd, m) {
  m.impl("threshold_signs", threshold_signs);
  m.impl("binary_conv2d", binary_conv2d);
  m.impl("binary_conv2d_signs", binary_conv2d_signs);
  m.impl("binary_linear", binary_linear);
  m.impl("binary_linear_signs", binary_linear_signs);
}

}  // namespace ulp::lowering
