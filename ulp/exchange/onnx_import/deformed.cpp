// DeformConv: a convolution whose window reads at places that are computed.
#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/windows.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// What the sizes of a deformable convolution say.
struct Deformed {
  Window window;
  int64_t groups = 1, offset_groups = 1;
  int64_t taps = 1;  ///< of the kernel
};

Deformed deformed_of(Call& call, const Tensor& x, const Tensor& weight, const Tensor& offset) {
  constexpr int64_t kImage = 4;
  if (x.dim() != kImage || weight.dim() != kImage || offset.dim() != kImage)
    call.refuse("expected an image of two dimensions, got ", x.sizes());
  Deformed made{.window = plain_window_of(call, x, weight.sizes().slice(2).vec()),
                .groups = call.attribute("group", int64_t{1}),
                .offset_groups = call.attribute("offset_group", int64_t{1})};
  made.taps = weight.size(2) * weight.size(3);
  const bool right = made.groups > 0 && made.offset_groups > 0 && x.size(1) % made.offset_groups == 0 &&
                     weight.size(1) * made.groups == x.size(1) && weight.size(0) % made.groups == 0 &&
                     offset.size(1) == 2 * made.taps * made.offset_groups;
  if (!right)
    call.refuse("expected weights and offsets that fit ", x.sizes(), ", got ", weight.sizes(), " and ",
                offset.sizes());
  return made;
}

/// Where the taps of dimension `d` of the kernel lie without an offset: [taps, 1, 1] + [out, 1] or [1, out].
Tensor regular_places(const Window& window, size_t d, int64_t outputs) {
  const auto longs = at::TensorOptions(at::kLong);
  const Tensor taps = at::mul(at::arange(window.kernel[d], longs), window.dilations[d]);
  const Tensor rows = d == 0 ? at::unsqueeze(taps, 1) : at::unsqueeze(taps, 0);
  const Tensor of_kernel =
      at::reshape(at::expand_copy(rows, {window.kernel[0], window.kernel[1]}), {-1, 1, 1});
  const Tensor starts = at::sub(at::mul(at::arange(outputs, longs), window.strides[d]), window.before[d]);
  return at::add(of_kernel, d == 0 ? at::unsqueeze(starts, 1) : at::unsqueeze(starts, 0));
}

/// The image at the places of all taps, [batch, channels, taps, height * width] of the result: weights of
/// four pixels around, which are 0 outside.
Tensor sampled_taps(const Deformed& conv, const Tensor& x, const Tensor& offset) {
  const int64_t batch = x.size(0), channels = x.size(1), height = offset.size(2), width = offset.size(3);
  const int64_t parts = batch * conv.offset_groups;
  const Tensor moved = at::reshape(offset, {parts, conv.taps, 2, height, width});
  const auto normed =
      [&](size_t d, int64_t size) {  // -1 and 1 are the edges of the image, not the middles of its pixels
        const Tensor place = at::add(at::select(moved, 2, static_cast<int64_t>(d)),
                                     regular_places(conv.window, d, d == 0 ? height : width));
        return at::sub(at::div(at::add(at::mul(place, 2), 1), size), 1);
      };
  const Tensor grid = at::stack({normed(1, x.size(3)), normed(0, x.size(2))}, -1);
  const Tensor image = at::reshape(x, {parts, channels / conv.offset_groups, x.size(2), x.size(3)});
  const Tensor read =
      at::grid_sampler_2d(image, at::reshape(grid, {parts, conv.taps * height, width, 2}).to(x.scalar_type()),
                          /*interpolation_mode=*/0, /*padding_mode=*/0, /*align_corners=*/false);
  return at::reshape(read, {batch, channels, conv.taps, height * width});
}

void deform_conv(Call& call) {
  constexpr size_t kOffset = 2, kBias = 3, kMask = 4;
  const Tensor x = call.x(0), weight = call.x(1), offset = call.x(kOffset);
  const Deformed conv = deformed_of(call, x, weight, offset);
  const int64_t batch = x.size(0), height = offset.size(2), width = offset.size(3), outputs = weight.size(0);
  Tensor columns = sampled_taps(conv, x, offset);
  if (call.has(kMask)) {
    const Tensor mask = call.x(kMask);
    if (mask.dim() != 4 || mask.size(1) != conv.taps * conv.offset_groups)
      call.refuse("expected a mask of ", conv.taps * conv.offset_groups, " channels, got ", mask.sizes());
    const Tensor grouped = at::reshape(columns, {batch, conv.offset_groups, -1, conv.taps, height * width});
    columns = at::mul(grouped, at::reshape(mask, {batch, conv.offset_groups, 1, conv.taps, height * width}));
  }
  const Tensor rows = at::reshape(columns, {batch, conv.groups, weight.size(1) * conv.taps, height * width});
  const Tensor products = at::matmul(at::reshape(weight, {conv.groups, outputs / conv.groups, -1}), rows);
  const Tensor y = at::reshape(products, {batch, outputs, height, width});
  call.set(call.has(kBias) ? at::add(y, at::reshape(call.x(kBias), {-1, 1, 1})) : y);
}

double deform_bound(Call& call) {
  const std::vector<int64_t> x = call.sizes(0), weight = call.sizes(1), offset = call.sizes(2);
  if (x.size() != 4 || weight.size() != 4 || offset.size() != 4) return 0;
  // Places of taps are a table of their own, for an empty batch, too.
  const auto as_number = [](int64_t size) { return static_cast<double>(std::max<int64_t>(size, 1)); };
  const double places = as_number(x[0]) * as_number(offset[2]) * as_number(offset[3]);
  const double taps = as_number(weight[2]) * as_number(weight[3]);
  return places * (4 * taps * as_number(x[1]) + 8 * as_number(offset[1]) + 3 * as_number(weight[0]));
}

}  // namespace

ConverterTable deformed_table() {
  static constexpr Converter kTable[] = {{"DeformConv", deform_conv, deform_bound}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
