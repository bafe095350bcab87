// Padding, and the moves between channels and pixels.
#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/windows.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// ONNX lists all that lies before and then all behind, LibTorch pairs from the last dimension on.
Sizes pairs_of(Call& call, int64_t rank) {
  const Sizes pads = call.list("pads", 1).value_or(Sizes());
  Sizes axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  if (call.has(3)) axes = call.ints(3);
  if (pads.size() != 2 * axes.size()) call.refuse("expected two pads for each dimension");
  Sizes pairs(2 * static_cast<size_t>(rank), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto at = static_cast<size_t>(2 * (rank - 1 - call.dim(axes[i], rank)));
    pairs[at] = pads[i];
    pairs[at + 1] = pads[axes.size() + i];
  }
  return pairs;
}

/// Leaves out the pairs of the first dimensions that are not padded.
Sizes without_zeros(Sizes pairs) {
  while (pairs.size() >= 2 && pairs[pairs.size() - 1] == 0 && pairs[pairs.size() - 2] == 0)
    pairs.resize(pairs.size() - 2);
  return pairs;
}

/// What is cut off where pads are below 0, which become 0.
Tensor cropped(Tensor x, Sizes& pairs) {
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const int64_t dim = x.dim() - 1 - static_cast<int64_t>(i / 2);
    const int64_t before = std::min<int64_t>(pairs[i], 0), behind = std::min<int64_t>(pairs[i + 1], 0);
    if (before < 0 || behind < 0) x = at::slice(x, dim, -before, x.size(dim) + behind);
    pairs[i] -= before;
    pairs[i + 1] -= behind;
  }
  return x;
}

/// The place inside of a dimension of `size` that a place around it repeats.
int64_t repeated_place(int64_t place, int64_t size, const std::string& mode) {
  if (mode == "edge") return std::clamp<int64_t>(place, 0, size - 1);
  const int64_t period = mode == "wrap" ? size : 2 * (size - 1), turn = ((place % period) + period) % period;
  return mode == "wrap" || turn < size ? turn : period - turn;
}

/// Dimension by dimension, where LibTorch has no operator.
Tensor padded_by_places(Tensor x, const Sizes& pairs, const std::string& mode) {
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const int64_t dim = x.dim() - 1 - static_cast<int64_t>(i / 2), size = x.size(dim);
    if (pairs[i] == 0 && pairs[i + 1] == 0) continue;
    Sizes places;
    for (int64_t k = -pairs[i]; k < size + pairs[i + 1]; ++k)
      places.push_back(size == 1 ? 0 : repeated_place(k, size, mode));
    const Tensor fixed = [&] {
      const at::DisableRecordFunctionGuard beside_the_capture;
      return torch::tensor(places, at::kLong);
    }();
    x = at::index_select(x, dim, fixed);
  }
  return x;
}

void check_pads(const Call& call, const Tensor& x, const Sizes& pairs, const std::string& mode) {
  for (size_t i = 0; i < pairs.size(); ++i) {
    const int64_t dim = x.dim() - 1 - static_cast<int64_t>(i / 2), size = x.size(dim);
    if (pairs[i] > 0 && (size == 0 || (mode == "reflect" && pairs[i] >= size)))
      call.refuse("expected dimension ", dim, " to be longer than its pad of ", pairs[i], " by ", mode,
                  ", got ", size,
                  call.run().store().has_free_sizes
                      ? "; OnnxImportOptions::sizes gives a free dimension a larger size"
                      : "");
  }
}

void pad(Call& call) {
  Tensor x = call.x(0);
  Sizes pairs = without_zeros(pairs_of(call, x.dim()));
  if (pairs.empty()) return call.set(x);
  const std::string mode = call.attribute("mode", "constant");
  if (mode == "constant") {
    at::Scalar value = call.has_attribute("value") ? call.attribute("value", 0.0) : 0.0;
    if (call.has(2)) value = call.scalar(2) ? *call.scalar(2) : call.numbers(2).at(0);
    return call.set(at::constant_pad_nd(x, pairs, value));
  }
  if (mode != "reflect" && mode != "edge" && mode != "wrap")
    call.refuse("expected the mode constant, reflect, edge or wrap, got ", mode);
  x = cropped(x, pairs);
  pairs = without_zeros(pairs);
  if (pairs.empty()) return call.set(x);
  check_pads(call, x, pairs, mode);
  const auto dims = static_cast<int64_t>(pairs.size() / 2);
  const bool has_operator = mode != "wrap" && dims <= 3 && (x.dim() == dims + 1 || x.dim() == dims + 2) &&
                            at::isFloatingType(x.scalar_type());
  if (!has_operator) return call.set(padded_by_places(x, pairs, mode));
  call.set(at::pad(x, pairs, mode == "edge" ? "replicate" : "reflect", std::nullopt));
}

void depth_to_space(Call& call) {
  const Tensor x = call.x(0);
  const int64_t block = call.attribute("blocksize", int64_t{0});
  if (x.dim() != 4 || block < 1 || block > 4096 || x.size(1) % (block * block) != 0)
    call.refuse("expected an image whose channels are a multiple of blocksize^2");
  const std::string mode = call.attribute("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") call.refuse("expected the mode DCR or CRD, got ", mode);
  if (mode == "CRD") return call.set(at::pixel_shuffle(x, block));
  const int64_t channels = x.size(1) / (block * block);
  const Tensor apart = at::reshape(x, {x.size(0), block, block, channels, x.size(2), x.size(3)});
  call.set(at::reshape(at::permute(apart, {0, 3, 4, 1, 5, 2}),
                       {x.size(0), channels, x.size(2) * block, x.size(3) * block}));
}

void space_to_depth(Call& call) {
  const Tensor x = call.x(0);
  const int64_t block = call.attribute("blocksize", int64_t{0});
  if (x.dim() != 4 || block < 1 || x.size(2) % block != 0 || x.size(3) % block != 0)
    call.refuse("expected an image whose sides are multiples of blocksize");
  const int64_t h = x.size(2) / block, w = x.size(3) / block;
  const Tensor apart = at::reshape(x, {x.size(0), x.size(1), h, block, w, block});
  const std::string mode = call.attribute("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") call.refuse("expected the mode DCR or CRD, got ", mode);
  const Sizes order = mode == "CRD" ? Sizes{0, 1, 3, 5, 2, 4} : Sizes{0, 3, 5, 1, 2, 4};
  call.set(at::reshape(at::permute(apart, order), {x.size(0), x.size(1) * block * block, h, w}));
}

/// Pixels at the places of a grid.
void grid_sample(Call& call) {
  const std::string mode = call.attribute("mode", "linear"), border = call.attribute("padding_mode", "zeros");
  const auto number_of = [&](const std::string& word, const std::vector<std::vector<std::string>>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (std::ranges::find(words[i], word) != words[i].end()) return static_cast<int64_t>(i);
    }
    call.refuse("expected a mode and a padding_mode that are known, got ", word);
  };
  const Tensor x = call.x(0);
  const int64_t rule = number_of(mode, {{"linear", "bilinear"}, {"nearest"}, {"cubic", "bicubic"}});
  if (x.dim() < 4 || x.dim() > 5 || (rule == 2 && x.dim() == 5))
    call.refuse("expected images, or volumes without cubic, got ", x.sizes());
  const bool corners = call.attribute("align_corners", int64_t{0}) != 0;
  call.set(at::grid_sampler(x, call.x(1), rule, number_of(border, {{"zeros"}, {"border"}, {"reflection"}}),
                            corners));
}

/// The grid of a linear map of places, for images or volumes.
void affine_grid(Call& call) {
  const Sizes sizes = call.ints(1);
  if (sizes.size() != 4 && sizes.size() != 5)
    call.refuse("expected sizes of images or volumes, got ", sizes.size());
  call.set(at::affine_grid_generator(call.x(0), sizes, call.attribute("align_corners", int64_t{0}) != 0));
}

double grid_bound(Call& call) {
  double all = 5;
  for (const int64_t size : call.ints(1)) all *= std::max(static_cast<double>(size), 1.0);
  return all;
}

/// The middle, or with zeros around.
void center_crop_pad(Call& call) {
  Tensor x = call.x(0);
  const Sizes sizes = call.ints(1);
  Sizes axes(sizes.size());
  std::iota(axes.begin(), axes.end(), 0);
  axes = call.attribute("axes", axes);
  if (axes.size() != sizes.size()) call.refuse("expected a size for each of ", axes.size(), " axes");
  Sizes pairs(2 * static_cast<size_t>(x.dim()), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t dim = call.dim(axes[i], x.dim()), missing = sizes[i] - x.size(dim);
    if (missing < 0) x = at::slice(x, dim, -missing / 2, -missing / 2 + sizes[i]);
    const auto at = static_cast<size_t>(2 * (x.dim() - 1 - dim));
    pairs[at] = std::max<int64_t>(missing, 0) / 2;
    pairs[at + 1] = std::max<int64_t>(missing, 0) - pairs[at];
  }
  pairs = without_zeros(pairs);
  call.set(pairs.empty() ? x : at::constant_pad_nd(x, pairs, 0));
}

double cropped_bound(Call& call) {
  double all = 1;
  for (const int64_t size : call.sizes(0)) all *= std::max(static_cast<double>(size), 1.0);
  for (const int64_t size : call.ints(1)) all *= std::max(static_cast<double>(size), 1.0);
  return all;
}

double sampled(Call& call) {
  const Sizes x = call.sizes(0), grid = call.sizes(1);
  double all = x.size() < 2 ? 1 : static_cast<double>(x[0]) * static_cast<double>(x[1]);
  for (size_t d = 1; d + 1 < grid.size(); ++d) all *= static_cast<double>(grid[d]);
  return all;
}

}  // namespace

ConverterTable image_table() {
  static constexpr Converter kTable[] = {{"Pad", pad, padded_bound},
                                         {"DepthToSpace", depth_to_space},
                                         {"GridSample", grid_sample, sampled},
                                         {"AffineGrid", affine_grid, grid_bound},
                                         {"CenterCropPad", center_crop_pad, cropped_bound},
                                         {"SpaceToDepth", space_to_depth}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
