// Resizing. By MIL's rules the operations step by in / out, whatever their factor; what LibTorch takes by
// another step is written as picks of rows and columns.
#include "ulp/exchange/resize.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/coreml/converters.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;

/// What a call makes of height and width, the last two dimensions.
class Resizer {
 public:
  Resizer(Builder& builder, const Node& node, bool linear)
      : builder_(builder),
        node_(node),
        linear_(linear),
        corners_(linear && bool_arg(node, "align_corners")),
        shape_(shape_of(node, *node.args.at(0).value)) {
    const std::vector<int64_t> to = shape_of(node);
    if (to.size() != 4) refuse(node, "expected images");
    std::vector<double> factors = {0, 0};
    if (!corners_) factors = resize_factors(node, 2);
    for (size_t i = 0; i < 2; ++i) axes_.push_back({shape_[2 + i], to[2 + i], factors[i]});
    if (!linear) find_picks(axes_, *node.args.at(0).value);
  }

  void write() {
    std::vector<size_t> apart;
    bool resizes = false;
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (!as_operation(axes_[i])) {
        apart.push_back(i);
      } else {
        resizes = resizes || axes_[i].in != axes_[i].out;
      }
    }
    resizes = resizes || apart.empty();
    std::string x = builder_.name_of(node_.args.at(0).value);
    for (size_t i = 0; i < apart.size(); ++i) {
      const ResizeAxis& axis = axes_[apart[i]];
      const size_t dim = 2 + apart[i];
      shape_[dim] = axis.out;
      const bool last = !resizes && i + 1 == apart.size();
      x = linear_ ? blend(x, axis, dim, last) : pick(x, axis.picks, dim, last);
    }
    if (resizes) by_operation(x, apart);
  }

 private:
  /// Nearest is known for whole factors alone, and corners for two of them.
  bool as_operation(const ResizeAxis& axis) const {
    if (linear_ && factor_of(axis) <= 0) return false;
    if (corners_) return axis.out > 1 || axis.in == 1;
    if (linear_) return axis.by_sizes();
    return axis.out % axis.in == 0 && repeats(axis);
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

  /// The last operation makes the node's result.
  std::string step(const char* op, Inputs inputs, bool last) {
    if (!last) return builder_.call(node_, op, std::move(inputs), {type_of(*node_.output()), shape_});
    builder_.result(node_, op, std::move(inputs));
    return builder_.name_of(node_.output());
  }

  std::string pick(const std::string& x, const std::vector<int64_t>& ids, size_t dim, bool last) {
    return step("gather",
                {{"x", x},
                 {"indices", builder_.ints(ids)},
                 {"axis", builder_.integer(static_cast<int64_t>(dim))},
                 {"batch_dims", builder_.integer(0)}},
                last);
  }

  /// Shares of two picks.
  std::string blend(const std::string& x, const ResizeAxis& axis, size_t dim, bool last) {
    const LinearPicks picks = linear_picks(axis, corners_);
    std::vector<int64_t> sizes(shape_.size() - dim, 1);
    sizes[0] = axis.out;
    const auto part = [&](const std::vector<int64_t>& ids, const at::Tensor& share) {
      const at::Tensor typed = share.reshape(sizes).to(type_of(*node_.output()));
      return step("mul", {{"x", pick(x, ids, dim, false)}, {"y", builder_.constant(typed, "shares")}}, false);
    };
    const std::string lower = part(picks.lower, 1 - picks.share), upper = part(picks.upper, picks.share);
    return step("add", {{"x", lower}, {"y", upper}}, last);
  }

  /// Along the dimensions that are left.
  void by_operation(const std::string& x, const std::vector<size_t>& apart) {
    const auto factor = [&](size_t i) {
      const bool done = std::ranges::find(apart, i) != apart.end();
      const float wanted = done ? 1 : factor_of(axes_[i]);
      return linear_ ? builder_.number(wanted, at::kFloat) : builder_.integer(static_cast<int64_t>(wanted));
    };
    Inputs inputs = {{"x", x}, {"scale_factor_height", factor(0)}, {"scale_factor_width", factor(1)}};
    if (!linear_) return builder_.result(node_, "upsample_nearest_neighbor", std::move(inputs));
    inputs.emplace_back("align_corners", builder_.flag(corners_));
    inputs.emplace_back("half_pixel_centers", builder_.flag(!corners_));
    builder_.result(node_, "upsample_bilinear", std::move(inputs));
  }

  Builder& builder_;
  const Node& node_;
  bool linear_, corners_;
  std::vector<int64_t> shape_;  // of what is made so far
  std::vector<ResizeAxis> axes_;
};

void nearest(Builder& builder, const Node& node) {
  Resizer(builder, node, /*linear=*/false).write();
}

void bilinear(Builder& builder, const Node& node) {
  Resizer(builder, node, /*linear=*/true).write();
}

}  // namespace

ConverterTable resize_converters() {
  static constexpr Converter kTable[] = {{"aten::upsample_nearest2d", nearest},
                                         {"aten::upsample_bilinear2d", bilinear}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
