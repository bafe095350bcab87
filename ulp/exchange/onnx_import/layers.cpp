// Convolutions and products of matrices.
#include <torch/types.h>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/patterns.h"
#include "ulp/exchange/onnx_import/windows.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

Sizes kernel_of(const Tensor& weight) {
  return weight.dim() > 2 ? weight.sizes().slice(2).vec() : Sizes();
}

void conv(Call& call) {
  const Tensor x = call.x(0), weight = call.x(1);
  const std::optional<Tensor> bias = call.optional(2);
  const int64_t groups = call.attribute("group", int64_t{1});
  Window window = window_of(call, x, kernel_of(weight));
  const Tensor input = window.even() ? x : padded(x, window, 0);
  switch (window.kernel.size()) {
    case 1:
      return call.set(
          at::conv1d(input, weight, bias, window.strides, window.before, window.dilations, groups));
    case 2:
      return call.set(
          at::conv2d(input, weight, bias, window.strides, window.before, window.dilations, groups));
    default:
      return call.set(
          at::conv3d(input, weight, bias, window.strides, window.before, window.dilations, groups));
  }
}

void conv_transpose(Call& call) {
  const Tensor x = call.x(0), weight = call.x(1);
  const std::optional<Tensor> bias = call.optional(2);
  const int64_t groups = call.attribute("group", int64_t{1});
  if (call.has_attribute("output_shape") || call.attribute("auto_pad", "NOTSET") != "NOTSET")
    call.refuse("expected padding in numbers, got output_shape or auto_pad");
  const Window window = window_of(call, x, kernel_of(weight));
  const size_t dims = window.kernel.size();
  Sizes more = call.attribute("output_padding", Sizes(dims, 0));
  if (more.size() != dims) call.refuse("expected ", dims, " numbers as attribute 'output_padding'");
  // Less padding behind than before is more output.
  for (size_t d = 0; d < dims; ++d) more[d] += window.before[d] - window.behind[d];
  for (const int64_t one : more) {
    if (one < 0) call.refuse("expected at most as much padding behind as before");
  }
  const auto& [kernel, strides, dilations, padding, behind] = window;
  switch (dims) {
    case 1:
      return call.set(at::conv_transpose1d(x, weight, bias, strides, padding, more, groups, dilations));
    case 2:
      return call.set(at::conv_transpose2d(x, weight, bias, strides, padding, more, groups, dilations));
    default:
      return call.set(at::conv_transpose3d(x, weight, bias, strides, padding, more, groups, dilations));
  }
}

void gemm(Call& call) {
  const double alpha = call.attribute("alpha", 1.0), beta = call.attribute("beta", 1.0);
  const bool plain = alpha == 1 && (beta == 1 || !call.has(2)) && call.attribute("transA", int64_t{0}) == 0;
  const bool turned = call.attribute("transB", int64_t{0}) != 0;
  if (plain) {
    const Tensor weight = turned ? call.x(1) : linear_weight(call, 1);
    const bool fits = weight.defined() && weight.dim() == 2 && call.x(0).dim() == 2;
    if (fits && (!call.has(2) || (call.x(2).dim() == 1 && call.x(2).size(0) == weight.size(0))))
      return call.set(at::linear(call.x(0), weight, call.optional(2)));
  }
  const Tensor a = call.attribute("transA", int64_t{0}) != 0 ? call.x(0).t() : call.x(0);
  const Tensor b = turned ? call.x(1).t() : call.x(1);
  if (call.has(2)) return call.set(at::addmm(call.x(2), a, b, beta, alpha));
  const Tensor product = at::mm(a, b);
  call.set(alpha == 1 ? product : at::mul(product, alpha));
}

void matmul(Call& call) {
  if (const Tensor attention = attention_of(call); attention.defined()) return call.set(attention);
  const Tensor x = call.x(0);
  const Tensor weight = x.dim() >= 2 ? linear_weight(call, 1) : Tensor();
  call.set(weight.defined() ? at::linear(x, weight) : at::matmul(x, call.x(1)));
}

void einsum(Call& call) {
  std::vector<Tensor> operands;
  for (size_t i = 0; i < call.inputs(); ++i) operands.push_back(call.x(i));
  call.set(at::einsum(call.attribute("equation", ""), operands));
}

}  // namespace

ConverterTable layer_table() {
  static constexpr Converter kTable[] = {{"Conv", conv, convolution},
                                         {"ConvTranspose", conv_transpose, transposed_convolution},
                                         {"Gemm", gemm, matrix_product},
                                         {"MatMul", matmul, matrix_product},
                                         {"Einsum", einsum, einsum_product}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
