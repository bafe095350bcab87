// Resizing. The operator steps by in / out, or by the inverse of a factor where it is given `scales`; what it
// would do otherwise than LibTorch is written as picks of rows and columns, or as products with stored matrices.
#include "ulp/exchange/resize.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::SizeExpr;
using graph::Value;

constexpr int64_t kFirstAxis = 2;  // behind the batch and the channels

/// LibTorch's rules: "nearest", "nearest-exact", "linear" and "bicubic".
enum class ResizeKind : uint8_t { nearest, nearest_exact, linear, cubic };

/// What a call resizes.
struct Resizing {
  std::vector<ResizeAxis> axes;
  bool fixed = true;  ///< all sizes are numbers; else those of the axes are the largest ones
  ResizeKind kind = ResizeKind::nearest;
  bool corners = false, antialias = false;

  bool picks() const { return kind == ResizeKind::nearest || kind == ResizeKind::nearest_exact; }

  Attributes attributes() const {
    const auto place = [](const char* mode) { return Attribute{"coordinate_transformation_mode", mode}; };
    if (kind == ResizeKind::nearest)
      return {{"mode", "nearest"}, place("asymmetric"), {"nearest_mode", "floor"}};
    if (kind == ResizeKind::nearest_exact)
      return {{"mode", "nearest"}, place("half_pixel"), {"nearest_mode", "round_prefer_ceil"}};
    Attributes all = {{"mode", kind == ResizeKind::linear ? "linear" : "cubic"},
                      place(corners ? "align_corners" : "half_pixel")};
    if (kind == ResizeKind::cubic) all.push_back({"cubic_coeff_a", -0.75F});
    return all;
  }
};

/// The batch and the free dimensions at their largest.
std::vector<int64_t> largest_sizes(const graph::Graph& graph) {
  std::vector<int64_t> sizes = {1};
  for (const graph::DynamicDimension& free : graph.free) sizes.push_back(free.max);
  return sizes;
}

Resizing resizing_of(const Builder& builder, const Node& node, ResizeKind kind, bool antialias) {
  const std::vector<SizeExpr>&from = sizes_of(node, *node.args.at(0).value),
        &to = sizes_of(node, *node.output());
  Resizing made{.axes = {}, .kind = kind, .antialias = antialias};
  made.corners = !made.picks() && bool_arg(node, "align_corners");
  const size_t dims = from.size() - kFirstAxis;
  const std::vector<double> factors =
      made.corners ? std::vector<double>(dims, 0) : resize_factors(node, dims);
  const std::vector<int64_t> largest = largest_sizes(builder.graph());
  for (size_t d = 0; d < dims; ++d) {
    const SizeExpr &in = from[kFirstAxis + d], &out = to[kFirstAxis + d];
    made.fixed = made.fixed && in.constant() && out.constant();
    made.axes.push_back({in.at(largest), out.at(largest), factors[d]});
  }
  if (made.picks() && made.fixed)
    find_picks(made.axes, *node.args.at(0).value, kind == ResizeKind::nearest_exact);
  return made;
}

/// Whether a place is nearly, but not quite, in the middle of two elements: runtimes may round it to either.
bool is_near_middle(float place) {
  constexpr float kNear = 2e-6F;
  const float twice = 2 * place, nearest = std::round(twice);
  const bool odd = std::fmod(std::abs(nearest), 2.0F) == 1;
  return odd && twice != nearest && std::abs(twice - nearest) <= kNear * std::max(1.0F, std::abs(twice));
}

/// The elements that ONNX Runtime picks: floor(i / scale) in f32, or the one nearest to (i + 1/2) / scale - 1/2. An
/// axis that keeps its size is left as it is. Empty where that may be either of two.
std::vector<int64_t> picked(const Resizing& resizing, const ResizeAxis& axis, float scale) {
  const bool exact = resizing.kind == ResizeKind::nearest_exact;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < axis.out; ++i) {
    const auto at = static_cast<float>(i);
    float place = axis.in == axis.out ? at : exact ? (at + 0.5F) / scale - 0.5F : at / scale;
    if (exact && is_near_middle(place)) return {};
    place = exact ? std::round(place) : std::floor(place);
    ids.push_back(std::clamp<int64_t>(static_cast<int64_t>(place), 0, axis.in - 1));
  }
  return ids;
}

float scale_of_sizes(const ResizeAxis& axis) {
  return static_cast<float>(axis.out) / static_cast<float>(axis.in);
}

bool as_by_sizes(const Resizing& resizing, const ResizeAxis& axis) {
  if (resizing.picks()) return picked(resizing, axis, scale_of_sizes(axis)) == axis.picks;
  return resizing.corners || axis.by_sizes();
}

/// The scale that makes the operator do as LibTorch along the axis; 0 where none does.
float scale_of(const Resizing& resizing, const ResizeAxis& axis) {
  const bool moves = axis.factor > 0 && !axis.by_sizes();
  if (moves && axis.in == axis.out) return 0;
  const float scale = factor_for(moves ? axis.factor : scale_of_sizes(axis), axis.in, axis.out);
  return scale > 0 && (!resizing.picks() || picked(resizing, axis, scale) == axis.picks) ? scale : 0;
}

std::string scales_text(Builder& builder, const std::vector<float>& scales) {
  std::vector<float> all = {1, 1};
  all.insert(all.end(), scales.begin(), scales.end());
  return builder.constant(torch::tensor(all, torch::kFloat), "scales");
}

/// One scale for each axis; empty where an axis has none.
std::vector<float> scales_of(const Resizing& resizing) {
  std::vector<float> scales;
  for (const ResizeAxis& axis : resizing.axes) {
    scales.push_back(scale_of(resizing, axis));
    if (scales.back() <= 0) return {};
  }
  return scales;
}

void by_scales(Builder& builder, const Node& node, const Resizing& resizing,
               const std::vector<float>& scales) {
  builder.result(node, "Resize", {builder.name_of(node.args.at(0).value), "", scales_text(builder, scales)},
                 resizing.attributes());
}

void by_sizes(Builder& builder, const Node& node, const Resizing& resizing) {
  builder.result(
      node, "Resize",
      {builder.name_of(node.args.at(0).value), "", "", builder.sizes(node, sizes_of(node, *node.output()))},
      resizing.attributes());
}

/// Writes one call after the other, the last one as the node's result.
class Chain {
 public:
  Chain(Builder& builder, const Node& node) : builder_(builder), node_(node) {}

  std::string call(const std::string& op, Names inputs, Attributes attributes, bool last) {
    if (!last) return builder_.call(node_, op, std::move(inputs), std::move(attributes));
    builder_.result(node_, op, std::move(inputs), std::move(attributes));
    return builder_.name_of(node_.output());
  }

  std::string pick(const std::string& x, const std::vector<int64_t>& ids, int64_t axis, bool last) {
    return call("Gather", {x, builder_.ints(ids)}, {{"axis", axis}}, last);
  }

  /// Shares of two picks.
  std::string blend(const std::string& x, const LinearPicks& picks, int64_t axis, int64_t rank, bool last) {
    std::vector<int64_t> shape(static_cast<size_t>(rank - axis), 1);
    shape[0] = -1;
    const auto part = [&](const std::vector<int64_t>& ids, const at::Tensor& share) {
      const at::Tensor typed = share.reshape(shape).to(type_of(*node_.output()));
      return builder_.call(node_, "Mul", {pick(x, ids, axis, false), builder_.constant(typed, "shares")});
    };
    return call("Add", {part(picks.lower, 1 - picks.share), part(picks.upper, picks.share)}, {}, last);
  }

  /// Sums of several elements by weights that do not change, as a product with a stored matrix.
  std::string product(const std::string& x, const ResizeAxis& axis, int64_t dim, int64_t rank, bool last) {
    const std::string shares =
        builder_.constant(resize_matrix(node_, axis).t().to(type_of(*node_.output())), "shares");
    if (dim == rank - 1) return call("MatMul", {x, shares}, {}, last);
    std::vector<int64_t> order(static_cast<size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    std::swap(order.at(static_cast<size_t>(dim)), order.back());
    const std::string made = builder_.call(node_, "MatMul", {transposed(builder_, node_, x, order), shares});
    return call("Transpose", {made}, {{"perm", order}}, last);
  }

 private:
  Builder& builder_;
  const Node& node_;
};

/// The axes along which the operator differs from LibTorch as picks or products, the others by the operator.
void spelled_out(Builder& builder, const Node& node, const Resizing& resizing) {
  std::vector<SizeExpr> sizes = sizes_of(node, *node.args.at(0).value);
  const int64_t rank = std::ssize(sizes);
  std::vector<size_t> apart;
  bool resizes = false;
  for (size_t d = 0; d < resizing.axes.size(); ++d) {
    const ResizeAxis& axis = resizing.axes[d];
    const bool changes = axis.in != axis.out || !axis.by_sizes();
    if (!as_by_sizes(resizing, axis) || (resizing.antialias && changes)) {
      apart.push_back(d);
    } else if (axis.in != axis.out) {
      resizes = true;
    }
  }
  Chain chain(builder, node);
  std::string x = builder.name_of(node.args.at(0).value);
  for (size_t i = 0; i < apart.size(); ++i) {
    const ResizeAxis& axis = resizing.axes[apart[i]];
    const int64_t place = kFirstAxis + static_cast<int64_t>(apart[i]);
    const bool last = !resizes && i + 1 == apart.size();
    if (resizing.picks()) {
      x = chain.pick(x, axis.picks, place, last);
    } else if (resizing.kind == ResizeKind::linear && !resizing.antialias) {
      x = chain.blend(x, linear_picks(axis, resizing.corners), place, rank, last);
    } else {
      x = chain.product(x, axis, place, rank, last);
    }
  }
  if (!resizes && apart.empty()) builder.alias(node.output(), x);
  if (!resizes) return;
  builder.result(node, "Resize", {x, "", "", builder.sizes(node, sizes_of(node, *node.output()))},
                 resizing.attributes());
}

/// Whether LibTorch leaves the factor out at a size that is kept, or of nearest images doubled.
bool leaves_factor_out(const Resizing& resizing, const ResizeAxis& axis) {
  if (axis.by_sizes() || axis.factor <= 1 || resizing.kind == ResizeKind::cubic) return false;
  const bool doubles = resizing.kind == ResizeKind::nearest && resizing.axes.size() == 2;
  for (int64_t in = 2; in <= axis.in; ++in) {
    const auto out = static_cast<int64_t>(static_cast<double>(in) * axis.factor);
    if (out == in || (doubles && out == 2 * in)) return true;
    if (out > 2 * in) return false;
  }
  return false;
}

/// Free sizes: those that LibTorch's factor gives are left to the operator.
void resize_free(Builder& builder, const Node& node, const Resizing& resizing) {
  const auto is_whole = [](const ResizeAxis& axis) { return axis.by_sizes(); };
  if (resizing.corners || std::ranges::all_of(resizing.axes, is_whole))
    return by_sizes(builder, node, resizing);
  std::vector<float> scales;
  for (const ResizeAxis& axis : resizing.axes) {
    if (axis.factor <= 0) refuse(node, "expected a factor for each dimension where sizes are free");
    if (leaves_factor_out(resizing, axis))
      refuse(node,
             "expected whole factors, or sizes that are numbers, as small ones are kept or doubled without "
             "the factor");
    scales.push_back(static_cast<float>(axis.factor));
  }
  by_scales(builder, node, resizing, scales);
}

void resize(Builder& builder, const Node& node, ResizeKind kind, bool antialias = false) {
  const Resizing resizing = resizing_of(builder, node, kind, antialias);
  // The attribute antialias leaves what lies outside of the image to exclude_outside, and bicubic and one pixel to the
  // runtime: products are PyTorch's everywhere.
  if (antialias) {
    if (!resizing.fixed) refuse(node, "expected an antialiased image whose sizes are numbers");
    // LibTorch 2.13 gives all rows the first one's number where the width becomes 1.
    const ResizeAxis& width = resizing.axes.back();
    if (width.out == 1 && width.in != 1)
      refuse(node, "expected an antialiased image that is wider than one pixel");
    return spelled_out(builder, node, resizing);
  }
  if (!resizing.fixed) return resize_free(builder, node, resizing);
  const auto is_same = [&](const ResizeAxis& axis) { return as_by_sizes(resizing, axis); };
  if (std::ranges::all_of(resizing.axes, is_same)) return by_sizes(builder, node, resizing);
  const std::vector<float> scales = scales_of(resizing);
  if (!scales.empty()) return by_scales(builder, node, resizing, scales);
  spelled_out(builder, node, resizing);
}

void nearest(Builder& builder, const Node& node) {
  resize(builder, node, ResizeKind::nearest);
}

void nearest_exact(Builder& builder, const Node& node) {
  resize(builder, node, ResizeKind::nearest_exact);
}

void linear_resize(Builder& builder, const Node& node) {
  resize(builder, node, ResizeKind::linear);
}

void cubic_resize(Builder& builder, const Node& node) {
  resize(builder, node, ResizeKind::cubic);
}

void antialiased_linear(Builder& builder, const Node& node) {
  resize(builder, node, ResizeKind::linear, /*antialias=*/true);
}

void antialiased_cubic(Builder& builder, const Node& node) {
  resize(builder, node, ResizeKind::cubic, /*antialias=*/true);
}

}  // namespace

ConverterTable resize_converters() {
  static constexpr Converter kTable[] = {{"aten::upsample_nearest1d", nearest},
                                         {"aten::upsample_nearest2d", nearest},
                                         {"aten::upsample_nearest3d", nearest},
                                         {"aten::upsample_linear1d", linear_resize},
                                         {"aten::upsample_bilinear2d", linear_resize},
                                         {"aten::upsample_trilinear3d", linear_resize},
                                         {"aten::_upsample_nearest_exact1d", nearest_exact},
                                         {"aten::_upsample_nearest_exact2d", nearest_exact},
                                         {"aten::_upsample_nearest_exact3d", nearest_exact},
                                         {"aten::upsample_bicubic2d", cubic_resize},
                                         {"aten::_upsample_bilinear2d_aa", antialiased_linear},
                                         {"aten::_upsample_bicubic2d_aa", antialiased_cubic}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
