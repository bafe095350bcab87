// Col2Im: columns of windows become an image.
#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "ulp/exchange/onnx_import/constants.h"
#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// The image with its pads, and the table of places, which is there for an empty batch, too.
double columns_bound(Call& call) {
  const auto at_least_one = [](int64_t number) { return static_cast<double>(std::max<int64_t>(number, 1)); };
  const std::vector<int64_t> image = call.ints(1), block = call.ints(2), x = call.sizes(0), none;
  const std::vector<int64_t> pads = call.attribute("pads", none), strides = call.attribute("strides", none);
  double all = 1, places = 1;
  for (const int64_t pad : pads) all *= 1 + std::max(static_cast<double>(pad), 0.0);
  for (size_t d = 0; d < image.size(); ++d) {
    all *= at_least_one(image[d]);
    double padded = at_least_one(image[d]);
    for (const size_t end : {d, d + image.size()}) padded += end < pads.size() ? at_least_one(pads[end]) : 0;
    places *= padded / (d < strides.size() ? at_least_one(strides[d]) : 1) + 1;
    places *= d < block.size() ? at_least_one(block[d]) : 1;
  }
  return 4 * (all * at_least_one(x.at(0)) * at_least_one(x.at(1)) + places + first_input(call));
}

/// What a window of Col2Im is, with the padding in front of and behind each dimension.
struct ColumnWindow {
  std::vector<int64_t> image, block, dilations, strides, pads;
  size_t dims() const { return image.size(); }
  int64_t padded(size_t d) const { return image[d] + pads[d] + pads[d + dims()]; }
  /// How often the window fits.
  int64_t steps(size_t d) const { return (padded(d) - (block[d] - 1) * dilations[d] - 1) / strides[d] + 1; }
};

ColumnWindow column_window(Call& call) {
  using Sizes = std::vector<int64_t>;
  ColumnWindow window{
      .image = call.ints(1), .block = call.ints(2), .dilations = {}, .strides = {}, .pads = {}};
  const size_t dims = window.dims();
  window.dilations = call.attribute("dilations", Sizes(dims, 1));
  window.strides = call.attribute("strides", Sizes(dims, 1));
  window.pads = call.attribute("pads", Sizes(2 * dims, 0));
  const auto above = [](int64_t lowest) { return [=](int64_t one) { return one >= lowest; }; };
  const bool right =
      dims > 0 && window.block.size() == dims && window.dilations.size() == dims &&
      window.strides.size() == dims && window.pads.size() == 2 * dims &&
      std::ranges::all_of(window.image, above(1)) && std::ranges::all_of(window.block, above(1)) &&
      std::ranges::all_of(window.dilations, above(1)) && std::ranges::all_of(window.strides, above(1)) &&
      std::ranges::all_of(window.pads, above(0));
  if (!right) call.refuse("expected an image, a block, dilations, strides and pads of as many dimensions");
  for (size_t d = 0; d < dims; ++d) {
    if (window.padded(d) < (window.block[d] - 1) * window.dilations[d] + 1)
      call.refuse("expected a block within the image and its pads");
  }
  return window;
}

/// The place of each column's numbers in the padded image, [block * steps], as rows of it.
Tensor column_places(const ColumnWindow& window) {
  Tensor blocks = at::zeros({1}, at::kLong), steps = at::zeros({1}, at::kLong);
  for (size_t d = 0; d < window.dims(); ++d) {
    const auto spread = [&](const Tensor& before, int64_t count, int64_t step) {
      const Tensor own = at::mul(at::arange(count, at::TensorOptions(at::kLong)), step);
      return at::add(at::mul(before, window.padded(d)).unsqueeze(1), own).flatten();
    };
    blocks = spread(blocks, window.block[d], window.dilations[d]);
    steps = spread(steps, window.steps(d), window.strides[d]);
  }
  return at::add(blocks.unsqueeze(1), steps).flatten();
}

/// Sums of columns [batch, channels * block, steps] at their places in an image.
void col2im(Call& call) {
  const ColumnWindow window = column_window(call);
  const auto& [image, block, dilations, strides, pads] = window;
  const Tensor x = call.x(0);
  const size_t dims = window.dims();
  if (dims == 2 && pads[0] == pads[2] && pads[1] == pads[3])
    return call.set(at::col2im(x, image, block, dilations, {pads[0], pads[1]}, strides));
  int64_t all = 1, each = 1, steps = 1;
  std::vector<int64_t> sizes = {x.size(0), 0}, cut;
  for (size_t d = 0; d < dims; ++d) {
    all *= window.padded(d);
    each *= block[d];
    steps *= window.steps(d);
    sizes.push_back(window.padded(d));
    cut.insert(cut.begin(), {-pads[d], -pads[d + dims]});
  }
  if (x.dim() != 3 || x.size(1) % each != 0 || x.size(2) != steps)
    call.refuse("expected columns [batch, channels * ", each, ", ", steps, "], got ", x.sizes());
  sizes[1] = x.size(1) / each;
  Tensor places;
  {
    const at::DisableRecordFunctionGuard beside_the_capture;
    places = column_places(window);
  }
  const Tensor numbers = at::reshape(x, {x.size(0), sizes[1], each * steps});
  const Tensor sums = at::index_add(at::zeros({x.size(0), sizes[1], all}, x.options()), 2,
                                    constant_of_node(call, ".places", places), numbers);
  call.set(at::constant_pad_nd(at::reshape(sums, sizes), cut));
}

}  // namespace

ConverterTable column_table() {
  static constexpr Converter kTable[] = {{"Col2Im", col2im, columns_bound}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
