// Resizing. The operators step by in / out; what LibTorch takes by another step is written as picks of rows
// and columns.
#include "ulp/exchange/resize.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;

constexpr size_t kHeight = 1, kWidth = 2;  // of an image [N, H, W, C]

/// What a call makes of height and width, from one tensor to the next.
class Resizer {
 public:
  Resizer(Builder& builder, const Node& node, bool linear)
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
    if (!linear) find_picks(axes_, x_);
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

  void pick(Index from, Index to, const std::vector<int64_t>& ids, size_t place) {
    schema::GatherOptionsT options;
    options.axis = static_cast<int32_t>(place);
    builder_.emit(Operation::GATHER, {from, builder_.ints(ids)}, {to}, options_of(std::move(options)));
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

void bilinear(Builder& builder, const Node& node) {
  Resizer(builder, node, /*linear=*/true).write();
}

}  // namespace

ConverterTable resize_converters() {
  static constexpr Converter kTable[] = {{"aten::upsample_nearest2d", nearest},
                                         {"aten::upsample_bilinear2d", bilinear}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
