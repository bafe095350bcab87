// Resizing. The operators step by in / out; what LibTorch takes by another step is written as picks of rows
// and columns.
#include "ulp/exchange/resize.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "ulp/exchange/tflite/along.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;

constexpr size_t kHeight = 1, kWidth = 2;  // of an image [N, H, W, C]

/// What a call makes of height and width, from one tensor to the next.
class Resizer {
 public:
  Resizer(Builder& builder, const Node& node, bool linear, bool exact = false)
      : builder_(builder),
        node_(node),
        x_(*node.args.at(0).value),
        linear_(linear),
        corners_(linear && bool_arg(node, "align_corners")),
        integer_(!linear && builder.has_codes(&x_)) {
    const Shape from = builder.shape_of(node, x_, Layout::channels_last),
                to = builder.shape_of(node, *node.output(), Layout::channels_last);
    if (from.sizes.size() != 4) refuse(node, "expected images");
    std::vector<double> factors = {0, 0};
    if (!corners_) factors = resize_factors(node, 2);
    for (const size_t place : {kHeight, kWidth})
      axes_.push_back({from.sizes[place], to.sizes[place], factors[place - kHeight]});
    if (!linear) find_picks(axes_, x_, exact);
  }

  void write() {
    std::vector<size_t> apart;
    bool resizes = false;
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (!as_by_sizes(axes_[i])) {
        apart.push_back(i);
      } else {
        resizes = resizes || axes_[i].in != axes_[i].out;
      }
    }
    resizes = resizes || apart.empty();
    Index image = builder_.tensor_of(node_, &x_, Layout::channels_last, integer_);
    for (size_t i = 0; i < apart.size(); ++i) {
      const ResizeAxis& axis = axes_[apart[i]];
      const size_t place = kHeight + apart[i];
      const Index to = target(image, place, axis.out, /*last=*/!resizes && i + 1 == apart.size());
      linear_ ? blend(image, to, axis, place) : pick(image, to, axis.picks, place);
      image = to;
    }
    if (resizes) by_operator(image);
  }

 private:
  bool as_by_sizes(const ResizeAxis& axis) const {
    if (linear_) return corners_ || axis.by_sizes();
    return picks_by_sizes(axis) == axis.picks;
  }

  /// The operator's rule.
  static std::vector<int64_t> picks_by_sizes(const ResizeAxis& axis) {
    const float step = static_cast<float>(axis.in) / static_cast<float>(axis.out);
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < axis.out; ++i)
      ids.push_back(std::min(static_cast<int64_t>(std::floor(static_cast<float>(i) * step)), axis.in - 1));
    return ids;
  }

  /// A tensor like `image` but for one size; the node's result at last.
  Index target(Index image, size_t place, int64_t size, bool last) {
    if (last) return result();
    Shape shape = builder_.shape_of_tensor(image);
    shape.sizes[place] = shape.signature[place] = static_cast<int32_t>(size);
    return builder_.like(image, shape);
  }

  Index result() { return builder_.make_moved(node_, node_.output(), Layout::channels_last, &x_, integer_); }

  void pick(Index from, Index to, const Picks& ids, size_t place) {
    pick_along(builder_, from, to, static_cast<int64_t>(place), ids);
  }

  /// Shares of two picks.
  void blend(Index from, Index to, const ResizeAxis& axis, size_t place) {
    const LinearPicks picks = linear_picks(axis, corners_);
    const Shape shape = builder_.shape_of_tensor(to);
    std::vector<int64_t> sizes(shape.sizes.size(), 1);
    sizes[place] = axis.out;
    const auto part = [&](const std::vector<int64_t>& ids, const at::Tensor& share) {
      const Index picked = builder_.like(from, shape), scaled = builder_.like(from, shape);
      pick(from, picked, ids, place);
      builder_.emit(Operation::MUL, {picked, builder_.constant(share.reshape(sizes))}, {scaled},
                    options_of(schema::MulOptionsT()));
      return scaled;
    };
    const Index lower = part(picks.lower, 1 - picks.share), upper = part(picks.upper, picks.share);
    builder_.emit(Operation::ADD, {lower, upper}, {to}, options_of(schema::AddOptionsT()));
  }

  /// Along the dimensions that are left.
  void by_operator(Index image) {
    constexpr int32_t kHalfPixels = 3;
    const Index sizes = builder_.ints({axes_[0].out, axes_[1].out}), made = result();
    if (!linear_)
      return builder_.emit(Operation::RESIZE_NEAREST_NEIGHBOR, {image, sizes}, {made},
                           options_of(schema::ResizeNearestNeighborOptionsT()));
    schema::ResizeBilinearOptionsT options;
    options.align_corners = corners_;
    options.half_pixel_centers = !corners_;
    builder_.emit(Operation::RESIZE_BILINEAR, {image, sizes}, {made}, options_of(std::move(options)),
                  corners_ ? 0 : kHalfPixels);
  }

  Builder& builder_;
  const Node& node_;
  const Value& x_;
  bool linear_, corners_, integer_;
  std::vector<ResizeAxis> axes_;  // height and width
};

void nearest(Builder& builder, const Node& node) {
  Resizer(builder, node, /*linear=*/false).write();
}

void nearest_exact(Builder& builder, const Node& node) {
  Resizer(builder, node, /*linear=*/false, /*exact=*/true).write();
}

/// The dimensions behind the channels, of which each one is resized by itself.
std::vector<ResizeAxis> axes_of(const Builder& builder, const Node& node) {
  const Value& x = *node.args.at(0).value;
  const Shape from = builder.shape_of(node, x), to = builder.shape_of(node, *node.output());
  const size_t dims = from.sizes.size() - 2;
  const bool corners = has_arg(node, "align_corners") && bool_arg(node, "align_corners");
  const std::vector<double> factors = corners ? std::vector<double>(dims, 0) : resize_factors(node, dims);
  std::vector<ResizeAxis> axes;
  for (size_t d = 0; d < dims; ++d) axes.push_back({from.sizes[2 + d], to.sizes[2 + d], factors[d]});
  return axes;
}

/// `write(image, axis of the file, axis)` along each dimension whose size or step is another one.
template <typename Write>
void resize_each(Builder& builder, const Node& node, bool integer, const std::vector<ResizeAxis>& axes,
                 const Write& write) {
  const Value& x = *node.args.at(0).value;
  const Layout layout = builder.layout_of(&x);
  const int64_t rank = rank_of(node, x);
  Index image = builder.tensor_of(node, &x, layout, integer);
  bool changed = false;
  for (size_t d = 0; d < axes.size(); ++d) {
    if (axes[d].in == axes[d].out && axes[d].by_sizes()) continue;
    image = write(image, axis_in(layout, static_cast<int64_t>(2 + d), rank), axes[d]);
    changed = true;
  }
  if (!changed) return builder.share(node.output(), &x);
  builder.place(node.output(), image, layout, integer ? &x : nullptr);
}

/// Sequences and volumes: the operators are of images.
void nearest_by_picks(Builder& builder, const Node& node) {
  const Value& x = *node.args.at(0).value;
  std::vector<ResizeAxis> axes = axes_of(builder, node);
  find_picks(axes, x, node.op().find("exact") != std::string_view::npos);
  const auto pick = [&](Index image, int64_t place, const ResizeAxis& axis) {
    return picked_along(builder, image, place, axis.picks);
  };
  resize_each(builder, node, builder.has_codes(&x), axes, pick);
}

/// LibTorch 2.13 repeats the first row of an antialiased result of one column.
void check_antialiased(const Node& node, const std::vector<ResizeAxis>& axes) {
  const ResizeAxis &rows = axes.at(0), &columns = axes.at(1);
  if (columns.out == 1 && rows.out > 1 && rows.in != rows.out)
    refuse(node, "expected an antialiased result of several columns, which LibTorch has as they are, got 1");
}

/// Sums of several elements by weights that do not change, as products with stored matrices.
void by_products(Builder& builder, const Node& node) {
  const std::vector<ResizeAxis> axes = axes_of(builder, node);
  if (node.op().ends_with("_aa")) check_antialiased(node, axes);
  const auto multiply = [&](Index image, int64_t place, const ResizeAxis& axis) {
    return product_along(builder, node, image, place, resize_matrix(node, axis));
  };
  resize_each(builder, node, /*integer=*/false, axes, multiply);
}

void bilinear(Builder& builder, const Node& node) {
  Resizer(builder, node, /*linear=*/true).write();
}

}  // namespace

ConverterTable resize_converters() {
  static constexpr Converter kTable[] = {{"aten::upsample_nearest2d", nearest},
                                         {"aten::_upsample_nearest_exact2d", nearest_exact},
                                         {"aten::upsample_nearest1d", nearest_by_picks},
                                         {"aten::upsample_nearest3d", nearest_by_picks},
                                         {"aten::_upsample_nearest_exact1d", nearest_by_picks},
                                         {"aten::_upsample_nearest_exact3d", nearest_by_picks},
                                         {"aten::upsample_bilinear2d", bilinear},
                                         {"aten::upsample_linear1d", by_products},
                                         {"aten::upsample_trilinear3d", by_products},
                                         {"aten::upsample_bicubic2d", by_products},
                                         {"aten::_upsample_bicubic2d_aa", by_products},
                                         {"aten::_upsample_bilinear2d_aa", by_products}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
