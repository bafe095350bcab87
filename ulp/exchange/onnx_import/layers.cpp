// Convolutions and products of matrices.
#include <torch/types.h>

#include <algorithm>

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

Tensor transposed_conv(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                       const Window& window, const Sizes& more, int64_t groups) {
  const auto& [kernel, strides, dilations, padding, behind] = window;
  switch (kernel.size()) {
    case 1:
      return at::conv_transpose1d(x, weight, bias, strides, padding, more, groups, dilations);
    case 2:
      return at::conv_transpose2d(x, weight, bias, strides, padding, more, groups, dilations);
    default:
      return at::conv_transpose3d(x, weight, bias, strides, padding, more, groups, dilations);
  }
}

/// The padding that gives the sizes which the file says, or the input's times the strides.
void pad_to_shape(Call& call, const Tensor& x, Window& window, const Sizes& more,
                  const std::string& automatic) {
  const size_t dims = window.kernel.size();
  Sizes shape;
  for (size_t d = 0; d < dims; ++d) shape.push_back(x.size(static_cast<int64_t>(d) + 2) * window.strides[d]);
  shape = call.attribute("output_shape", shape);
  if (shape.size() == dims + 2) shape.erase(shape.begin(), shape.begin() + 2);
  if (shape.size() != dims) call.refuse("expected ", dims, " numbers as attribute 'output_shape'");
  if (call.has_attribute("output_shape"))
    call.expect_the_same(x.sizes().slice(2).vec(),
                         "expected an input whose sizes are numbers, for an output_shape");
  for (size_t d = 0; d < dims; ++d) {
    const int64_t all =
        window.strides[d] * (x.size(static_cast<int64_t>(d) + 2) - 1) + more[d] + reach_of(window, d);
    const int64_t total = all - shape[d];
    if (total < 0 && !call.has_attribute("output_shape"))
      call.refuse("expected windows as long as their strides for the auto_pad ", automatic, ", got one of ",
                  reach_of(window, d), " with a stride of ", window.strides[d], ", by which runtimes differ");
    if (total < 0) {  // what is missing comes behind, and attribute 'pads' is not asked
      window.before[d] = 0;
      window.behind[d] = total;
      continue;
    }
    window.before[d] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
    window.behind[d] = total - window.before[d];
  }
}

void conv_transpose(Call& call) {
  const Tensor x = call.x(0), weight = call.x(1);
  const std::optional<Tensor> bias = call.optional(2);
  const int64_t groups = call.attribute("group", int64_t{1});
  const std::string automatic = call.attribute("auto_pad", "NOTSET");
  Window window = plain_window_of(call, x, kernel_of(weight));
  const size_t dims = window.kernel.size();
  const Sizes given = call.attribute("output_padding", Sizes(dims, 0));
  if (given.size() != dims || std::ranges::any_of(given, [](int64_t one) { return one < 0; }))
    call.refuse("expected ", dims, " numbers of 0 or more as attribute 'output_padding'");
  if (call.has_attribute("output_shape") || automatic.starts_with("SAME"))
    pad_to_shape(call, x, window, given, automatic);
  // Less padding behind than before is more output.
  Sizes more = given;
  bool usual = true;
  for (size_t d = 0; d < dims; ++d) {
    more[d] += window.before[d] - window.behind[d];
    usual = usual && more[d] >= 0 && more[d] < std::max(window.strides[d], window.dilations[d]);
  }
  if (usual) return call.set(transposed_conv(x, weight, bias, window, more, groups));
  // All of it, then what the pads leave; what output_padding adds behind is the bias alone.
  Window whole = window;
  whole.before = Sizes(dims, 0);
  Sizes pairs;
  for (size_t d = dims; d-- > 0;) {
    pairs.push_back(-window.before[d]);
    pairs.push_back(given[d] - window.behind[d]);
  }
  const Tensor all = transposed_conv(x, weight, std::nullopt, whole, Sizes(dims, 0), groups);
  const Tensor cut = at::constant_pad_nd(all, pairs, 0);
  Sizes along(dims + 1, 1);
  along[0] = -1;
  call.set(bias ? at::add(cut, at::reshape(*bias, along)) : cut);
}

/// C of a Gemm where it is one number a column, as the bias of a linear layer; nothing for another C.
std::optional<Tensor> row_bias(Call& call, int64_t columns) {
  const Sizes sizes = call.sizes(2);
  const bool row = std::ranges::all_of(sizes, [&](int64_t size) { return size == 1 || size == columns; });
  if (!row || sizes.size() > 2 || (sizes.size() == 2 && sizes[0] != 1)) return std::nullopt;
  if (sizes.empty() ? columns != 1 : sizes.back() != columns) return std::nullopt;
  Store& store = call.run().store();
  const std::string& name = call.name(2);
  const Tensor stored = store.is_initializer(name) ? store.find(name) : Tensor();
  if (sizes.size() == 1) return call.x(2);
  const bool own = stored.defined() && call.analysis().is_parameter(name) && columns > 1 &&
                   call.analysis().uses(name).size() == 1 && !call.analysis().is_result(name);
  if (!own) return at::reshape(call.x(2), {columns});
  return store.attribute(name, graph::Attribute::Kind::parameter, [&] { return stored.reshape({columns}); });
}

/// alpha A B + beta C as a linear layer; undefined where it is none.
Tensor linear_layer(Call& call) {
  const bool turned = call.attribute("transB", int64_t{0}) != 0;
  const bool plain = call.attribute("alpha", 1.0) == 1 && (call.attribute("beta", 1.0) == 1 || !call.has(2));
  if (!plain || call.attribute("transA", int64_t{0}) != 0) return {};
  const Sizes b = call.sizes(1);
  if (b.size() != 2 || call.sizes(0).size() != 2 || !at::isFloatingType(call.x(0).scalar_type())) return {};
  std::optional<Tensor> bias;
  if (call.has(2)) {
    bias = row_bias(call, turned ? b[0] : b[1]);
    if (!bias) return {};
  }
  const LinearWeight weight = turned ? turned_weight(call, 1) : linear_weight(call, 1);
  return weight.defined() ? linear(call.x(0), weight, bias) : Tensor();
}

void gemm(Call& call) {
  if (const Tensor linear = linear_layer(call); linear.defined()) return call.set(linear);
  const double alpha = call.attribute("alpha", 1.0), beta = call.attribute("beta", 1.0);
  const Tensor a = call.attribute("transA", int64_t{0}) != 0 ? call.x(0).t() : call.x(0);
  const Tensor b = call.attribute("transB", int64_t{0}) != 0 ? call.x(1).t() : call.x(1);
  if (a.dim() != 2 || b.dim() != 2) call.refuse("expected matrices, got ", a.sizes(), " and ", b.sizes());
  if (!at::isFloatingType(a.scalar_type())) call.refuse("expected floats, got ", a.scalar_type());
  if (call.has(2)) return call.set(at::addmm(call.x(2), a, b, beta, alpha));
  const Tensor product = at::mm(a, b);
  call.set(alpha == 1 ? product : at::mul(product, alpha));
}

void matmul(Call& call) {
  if (const Tensor attention = attention_of(call); attention.defined()) return call.set(attention);
  const Tensor x = call.x(0);
  const LinearWeight weight = x.dim() >= 2 ? linear_weight(call, 1) : LinearWeight();
  call.set(weight.defined() ? linear(x, weight) : at::matmul(x, call.x(1)));
}

void einsum(Call& call) {
  std::vector<Tensor> operands;
  for (size_t i = 0; i < call.inputs(); ++i) operands.push_back(call.x(i));
  call.set(at::einsum(call.attribute("equation", ""), operands));
}

void det(Call& call) {
  call.set(at::linalg_det(call.x(0)));
}

}  // namespace

ConverterTable layer_table() {
  static constexpr Converter kTable[] = {
      {"Conv", conv, convolution},        {"ConvTranspose", conv_transpose, transposed_convolution},
      {"Gemm", gemm, matrix_product},     {"MatMul", matmul, matrix_product},
      {"Einsum", einsum, einsum_product}, {"Det", det, first_input}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
