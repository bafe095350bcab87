// Resizing. By MIL's rules the operations step by in / out, whatever their factor, and are for images; what LibTorch
// takes by another step, or in other ways, is written as picks, blends and products along one dimension after the
// other.
#include "ulp/exchange/resize.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/coreml/along.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;

enum class ResizeRule { nearest, nearest_exact, linear, cubic, antialiased };

/// What a call makes of the dimensions behind the channels.
class Resizer {
 public:
  Resizer(Builder& builder, const Node& node, ResizeRule rule)
      : builder_(builder), node_(node), rule_(rule), along_(builder, node, *node.args.at(0).value) {
    corners_ = has_arg(node, "align_corners") && bool_arg(node, "align_corners");
    const std::vector<int64_t> from = along_.shape(), to = shape_of(node);
    const size_t dims = to.size() - kFirst;
    std::vector<double> factors(dims, 0);
    if (!corners_) factors = resize_factors(node, dims);
    for (size_t i = 0; i < dims; ++i) axes_.push_back({from[kFirst + i], to[kFirst + i], factors[i]});
    if (picks()) find_picks(axes_, *node.args.at(0).value, rule == ResizeRule::nearest_exact);
    // LibTorch 2.13 gives all rows the first one's number where the width becomes 1.
    if (rule == ResizeRule::antialiased && axes_.back().out == 1 && axes_.back().in != 1)
      refuse(node, "expected an antialiased image that is wider than one pixel");
  }

  void write() {
    std::vector<bool> by_operation;
    for (size_t i = 0; i < axes_.size(); ++i) {
      by_operation.push_back(axes_.size() == kImageAxes && as_operation(axes_[i]));
      if (!by_operation[i] && !stays(axes_[i])) change(axes_[i], static_cast<int64_t>(kFirst + i));
    }
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (by_operation[i] && axes_[i].in != axes_[i].out) return write_operation(by_operation);
    }
    along_.finish();
  }

 private:
  static constexpr size_t kFirst = 2, kImageAxes = 2;

  bool picks() const { return rule_ == ResizeRule::nearest || rule_ == ResizeRule::nearest_exact; }

  /// Nearest is known for whole factors alone, and corners for two of them.
  bool as_operation(const ResizeAxis& axis) const {
    if (rule_ == ResizeRule::nearest || rule_ == ResizeRule::nearest_exact)
      return axis.out % axis.in == 0 && repeats(axis);
    if (rule_ != ResizeRule::linear || factor_of(axis) <= 0) return false;
    return corners_ ? axis.out > 1 || axis.in == 1 : axis.by_sizes();
  }

  /// Whether nothing changes along a dimension.
  bool stays(const ResizeAxis& axis) const {
    if (axis.in != axis.out) return false;
    return picks() ? repeats(axis) : corners_ || axis.by_sizes();
  }

  /// Each element as often as the factor says.
  static bool repeats(const ResizeAxis& axis) {
    const int64_t times = axis.out / axis.in;
    for (size_t i = 0; i < axis.picks.size(); ++i) {
      if (axis.picks[i] != static_cast<int64_t>(i) / times) return false;
    }
    return true;
  }

  static float factor_of(const ResizeAxis& axis) {
    return factor_for(static_cast<double>(axis.out) / static_cast<double>(axis.in), axis.in, axis.out);
  }

  void change(const ResizeAxis& axis, int64_t dim) {
    if (picks()) return along_.pick(dim, axis.picks);
    if (rule_ == ResizeRule::linear) return along_.blend(dim, linear_picks(axis, corners_));
    along_.product(dim, resize_matrix(node_, axis));
  }

  /// Along the dimensions that are left.
  void write_operation(const std::vector<bool>& by_operation) {
    const bool linear = rule_ == ResizeRule::linear;
    const auto factor = [&](size_t i) {
      const float wanted = by_operation[i] ? factor_of(axes_[i]) : 1;
      return linear ? builder_.number(wanted, at::kFloat) : builder_.integer(static_cast<int64_t>(wanted));
    };
    Inputs inputs = {
        {"x", along_.name()}, {"scale_factor_height", factor(0)}, {"scale_factor_width", factor(1)}};
    if (!linear) return builder_.result(node_, "upsample_nearest_neighbor", std::move(inputs));
    inputs.emplace_back("align_corners", builder_.flag(corners_));
    inputs.emplace_back("half_pixel_centers", builder_.flag(!corners_));
    builder_.result(node_, "upsample_bilinear", std::move(inputs));
  }

  Builder& builder_;
  const Node& node_;
  ResizeRule rule_;
  bool corners_;
  Along along_;
  std::vector<ResizeAxis> axes_;
};

template <ResizeRule rule>
void resize(Builder& builder, const Node& node) {
  Resizer(builder, node, rule).write();
}

}  // namespace

ConverterTable resize_converters() {
  static constexpr Converter kTable[] = {
      {"aten::upsample_nearest1d", resize<ResizeRule::nearest>},
      {"aten::upsample_nearest2d", resize<ResizeRule::nearest>},
      {"aten::upsample_nearest3d", resize<ResizeRule::nearest>},
      {"aten::_upsample_nearest_exact1d", resize<ResizeRule::nearest_exact>},
      {"aten::_upsample_nearest_exact2d", resize<ResizeRule::nearest_exact>},
      {"aten::_upsample_nearest_exact3d", resize<ResizeRule::nearest_exact>},
      {"aten::upsample_linear1d", resize<ResizeRule::linear>},
      {"aten::upsample_bilinear2d", resize<ResizeRule::linear>},
      {"aten::upsample_trilinear3d", resize<ResizeRule::linear>},
      {"aten::upsample_bicubic2d", resize<ResizeRule::cubic>},
      {"aten::_upsample_bilinear2d_aa", resize<ResizeRule::antialiased>},
      {"aten::_upsample_bicubic2d_aa", resize<ResizeRule::antialiased>}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
