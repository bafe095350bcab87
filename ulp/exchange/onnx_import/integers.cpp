// Codes that are made and multiplied as the network runs: DynamicQuantizeLinear, MatMulInteger, ConvInteger,
// and the layer that they make.
#include <torch/types.h>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/kept_name.h"
#include "ulp/exchange/onnx_import/windows.h"
#include "ulp/quant/weights/dynamic.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// By the smallest and the largest number with 0: scale 1 for zeros alone.
void dynamic_quantize(Call& call) {
  constexpr double kHighest = 255;
  const Tensor x = call.x(0);
  const Tensor low = at::clamp_max(at::amin(x), 0), high = at::clamp_min(at::amax(x), 0);
  const Tensor span = at::div(at::sub(high, low), kHighest);
  const Tensor scale = at::masked_fill(span, at::eq(high, low), 1);
  const Tensor zero = at::clamp(at::round(at::div(at::neg(low), scale)), 0, kHighest);
  const Tensor codes = at::clamp(at::add(at::round(at::div(x, scale)), zero), 0, kHighest);
  call.set(codes.to(at::kByte), 0);
  call.set(scale, 1);
  call.set(zero.to(at::kByte), 2);
}

/// Codes less their zero point, in double: sums of their products are exact. `dim` is that of a zero point
/// for each index.
Tensor centered_codes(Call& call, size_t codes, size_t zero, int64_t dim) {
  const Tensor q = call.x(codes).to(at::kDouble);
  if (!call.has(zero)) return q;
  Tensor z = call.x(zero).to(at::kDouble);
  if (z.dim() == 1 && z.size(0) != 1) {
    std::vector<int64_t> along(static_cast<size_t>(q.dim()), 1);
    along[static_cast<size_t>(call.dim(dim, q.dim()))] = z.size(0);
    z = at::reshape(z, along);
  }
  return at::sub(q, z);
}

void matmul_integer(Call& call) {
  const Tensor a = centered_codes(call, 0, 2, -2), b = centered_codes(call, 1, 3, -1);
  call.set(at::matmul(a, b).to(at::kInt));
}

void conv_integer(Call& call) {
  const Tensor x = centered_codes(call, 0, 2, 1), weight = centered_codes(call, 1, 3, 0);
  Window window = window_of(call, x, weight.dim() > 2 ? weight.sizes().slice(2).vec() : Sizes());
  const int64_t groups = call.attribute("group", int64_t{1});
  const Tensor input = window.even() ? x : padded(x, window, 0);
  const auto& [kernel, strides, dilations, before, behind] = window;
  switch (kernel.size()) {
    case 1:
      return call.set(at::conv1d(input, weight, {}, strides, before, dilations, groups).to(at::kInt));
    case 2:
      return call.set(at::conv2d(input, weight, {}, strides, before, dilations, groups).to(at::kInt));
    default:
      return call.set(at::conv3d(input, weight, {}, strides, before, dilations, groups).to(at::kInt));
  }
}

/// x by codes [in, out] of the file, with a scale a column or one for all.
void linear_dynamic(Call& call) {
  using Kind = graph::Attribute::Kind;
  Store& store = call.run().store();
  const Tensor codes = store.find(call.name(1)), scale = store.find(call.name(2));
  const bool fits = codes.defined() && codes.dim() == 2 && codes.scalar_type() == at::kChar &&
                    scale.defined() && (scale.numel() == 1 || scale.numel() == codes.size(1));
  if (!fits) call.refuse("expected codes [in, out] of int8 and their scales as tensors of the file");
  const std::string name = kept_name(call, call.node(), 1, call.name(1), /*ending=*/"", /*first=*/1);
  const Tensor weight =
      store.attribute(name + ".out_in", Kind::buffer, [&] { return codes.t().contiguous(); });
  const Tensor scales = store.attribute(name + ".scale", Kind::buffer, [&] {
    return scale.to(at::kFloat).reshape({-1}).expand({codes.size(1)}).contiguous();
  });
  const Tensor x = call.x(0);
  if (x.dim() < 1 || x.size(-1) != codes.size(0))
    call.refuse("expected ", codes.size(0), " features, got ", x.sizes());
  call.set(quant::linear_dynamic(x, weight, scales, call.optional(3), /*per_tensor=*/true));
}

}  // namespace

ConverterTable integer_table() {
  static constexpr Converter kTable[] = {{"DynamicQuantizeLinear", dynamic_quantize, twice},
                                         {"MatMulInteger", matmul_integer, integer_product},
                                         {"ConvInteger", conv_integer, convolution},
                                         {"LinearDynamic", linear_dynamic, matrix_product}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
