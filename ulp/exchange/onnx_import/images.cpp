// Padding, resizing and the moves between channels and pixels.
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;
using Sizes = std::vector<int64_t>;

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

void pad(Call& call) {
  const Tensor x = call.x(0);
  Sizes pairs = pairs_of(call, x.dim());
  const std::string mode = call.attribute("mode", "constant");
  while (pairs.size() >= 2 && pairs[pairs.size() - 1] == 0 && pairs[pairs.size() - 2] == 0)
    pairs.resize(pairs.size() - 2);
  if (pairs.empty()) return call.set(x);
  if (mode == "constant") {
    const double value = call.has(2) ? call.number(2) : call.attribute("value", 0.0);
    return call.set(at::constant_pad_nd(x, pairs, value));
  }
  if (mode != "reflect" && mode != "edge")
    call.refuse("expected the mode constant, reflect or edge, got ", mode);
  call.set(at::pad(x, pairs, mode == "edge" ? "replicate" : "reflect", std::nullopt));
}

/// How ONNX finds the place of a pixel, in LibTorch's words.
struct Rule {
  bool linear = false, corners = false;
};
Rule rule_of(const Call& call) {
  const std::string mode = call.attribute("mode", "nearest");
  const std::string place = call.attribute("coordinate_transformation_mode",
                                           call.node().op == "Upsample" ? "asymmetric" : "half_pixel");
  if (mode == "linear" &&
      (place == "half_pixel" || place == "pytorch_half_pixel" || place == "align_corners"))
    return {.linear = true, .corners = place == "align_corners"};
  const std::string rounding =
      call.attribute("nearest_mode", call.node().op == "Upsample" ? "floor" : "round_prefer_floor");
  if (mode != "nearest" || place != "asymmetric" || rounding != "floor")
    call.refuse("expected nearest by asymmetric and floor, or linear by half_pixel or align_corners, got ",
                mode, " by ", place, mode == "nearest" ? " and " + rounding : "");
  return {};
}

/// Sizes of the result, batch and channels apart.
Sizes resized(Call& call, const Tensor& x) {
  const bool upsample = call.node().op == "Upsample";
  const size_t scales = upsample ? 1 : 2, sizes = upsample ? SIZE_MAX : 3;
  const auto rank = static_cast<size_t>(x.dim());
  Sizes all(rank);
  if (call.has(sizes)) {
    all = call.ints(sizes);
  } else {
    const Tensor factors = call.known(scales).to(at::kFloat);
    if (static_cast<size_t>(factors.numel()) != rank) call.refuse("expected a scale for each dimension");
    for (size_t d = 0; d < rank; ++d) {
      const double size = std::floor(static_cast<double>(x.size(static_cast<int64_t>(d))) *
                                     factors.const_data_ptr<float>()[d]);
      if (!(size >= 0 && size < 1e9)) call.refuse("expected scales that give a size, got ", size);
      all[d] = static_cast<int64_t>(size);
    }
  }
  if (all.size() != rank || rank < 3 || all[0] != x.size(0) || all[1] != x.size(1))
    call.refuse("expected to resize all but the first two dimensions, and those alone");
  return {all.begin() + 2, all.end()};
}

void resize(Call& call) {
  const Tensor x = call.x(0);
  const Rule rule = rule_of(call);
  const Sizes to = resized(call, x);
  switch (to.size()) {
    case 1:
      return call.set(rule.linear ? at::upsample_linear1d(x, to, rule.corners)
                                  : at::upsample_nearest1d(x, to));
    case 2:
      return call.set(rule.linear ? at::upsample_bilinear2d(x, to, rule.corners)
                                  : at::upsample_nearest2d(x, to));
    case 3:
      return call.set(rule.linear ? at::upsample_trilinear3d(x, to, rule.corners)
                                  : at::upsample_nearest3d(x, to));
    default:
      call.refuse("expected 1 to 3 dimensions behind the channels, got ", to.size());
  }
}

void depth_to_space(Call& call) {
  const Tensor x = call.x(0);
  const int64_t block = call.attribute("blocksize", int64_t{0});
  if (x.dim() != 4 || block < 1 || block > 4096 || x.size(1) % (block * block) != 0)
    call.refuse("expected an image whose channels are a multiple of blocksize^2");
  if (call.attribute("mode", "DCR") == "CRD") return call.set(at::pixel_shuffle(x, block));
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
  call.set(at::reshape(at::permute(apart, {0, 3, 5, 1, 2, 4}), {x.size(0), x.size(1) * block * block, h, w}));
}

}  // namespace

ConverterTable image_table() {
  static constexpr Converter kTable[] = {{"Pad", pad, padded_bound},
                                         {"Resize", resize, resized_bound},
                                         {"Upsample", resize, resized_bound},
                                         {"DepthToSpace", depth_to_space},
                                         {"SpaceToDepth", space_to_depth}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
