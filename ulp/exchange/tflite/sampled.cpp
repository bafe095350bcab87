// grid_sample: elements of an image at places that are computed, by LibTorch's formulas for floats.
#include <torch/types.h>

#include <vector>

#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;
using schema::TensorType;

enum class Sampling : int64_t { bilinear = 0, nearest = 1, bicubic = 2 };
enum class Outside : int64_t { zeros = 0, border = 1, reflection = 2 };

/// What a result takes along one dimension: an element, whether that is in the image, and its share.
struct Tap {
  Index place = -1;   ///< floats that are whole numbers in the image
  Index inside = -1;  ///< truth values; -1: always
  Index share = -1;   ///< -1: all of it
};

/// Formulas of one call. Tensors are [N, H, W, 1], a number for each pixel of the result.
class GridFormula {
 public:
  GridFormula(Builder& builder, const Node& node) : builder_(builder), node_(node) {}

  Index number(double value) { return builder_.scalar(value); }
  Index unary(Operation op, Index a) {
    const Index made = like(a);
    builder_.emit(op, {a}, {made});
    return made;
  }
  Index add(Index a, Index b) { return binary(Operation::ADD, a, b, options_of(schema::AddOptionsT())); }
  Index sub(Index a, Index b) { return binary(Operation::SUB, a, b, options_of(schema::SubOptionsT())); }
  Index mul(Index a, Index b) { return binary(Operation::MUL, a, b, options_of(schema::MulOptionsT())); }
  Index div(Index a, Index b) { return binary(Operation::DIV, a, b, options_of(schema::DivOptionsT())); }
  Index minimum(Index a, Index b) { return binary(Operation::MINIMUM, a, b); }
  Index maximum(Index a, Index b) { return binary(Operation::MAXIMUM, a, b); }
  Index clamp(Index a, double low, double high) { return minimum(maximum(a, number(low)), number(high)); }
  Index truth(Operation op, Index a, Index b) {
    const Index made = builder_.between(node_, builder_.shape_of_tensor(a), TensorType::BOOL);
    builder_.emit(op, {a, b}, {made});
    return made;
  }
  /// `shaped` has the result's sizes.
  Index where(Index condition, Index a, Index b, Index shaped) {
    const Index made = like(shaped);
    builder_.emit(Operation::SELECT_V2, {condition, a, b}, {made});
    return made;
  }

 private:
  Index like(Index a) { return builder_.like(a, builder_.shape_of_tensor(a)); }
  /// The first operand has the result's sizes, but for numbers.
  Index binary(Operation op, Index a, Index b, Options options = {}) {
    const bool by_number = builder_.shape_of_tensor(a).sizes.empty();
    const Index made = like(by_number ? b : a);
    builder_.emit(op, {a, b}, {made}, std::move(options));
    return made;
  }

  Builder& builder_;
  const Node& node_;
};

/// Places along one dimension of the image.
class GridAxis {
 public:
  GridAxis(GridFormula& formula, int64_t size, Outside outside, bool corners)
      : f_(formula), size_(static_cast<double>(size)), outside_(outside), corners_(corners) {}

  std::vector<Tap> taps(Index grid, Sampling sampling) {
    const Index one = f_.number(1);
    // -1 and 1 are the middles of the outer pixels, or their outer edges.
    Index place = f_.mul(f_.add(grid, one), f_.number((corners_ ? size_ - 1 : size_) / 2));
    if (!corners_) place = f_.sub(place, f_.number(0.5));
    if (sampling == Sampling::nearest) return {inside_of(f_.unary(Operation::ROUND, returned(place)))};
    if (sampling == Sampling::bicubic) return cubic(place);
    place = returned(place);
    const Index lower = f_.unary(Operation::FLOOR, place), share = f_.sub(place, lower);
    Tap first = inside_of(lower), second = inside_of(f_.add(lower, one));
    first.share = f_.sub(one, share);
    second.share = share;
    return {first, second};
  }

 private:
  /// What is outside comes back to the edge, or is mirrored there.
  Index returned(Index place) {
    if (outside_ == Outside::zeros) return place;
    if (outside_ == Outside::reflection) place = mirrored(place);
    return f_.clamp(place, 0, size_ - 1);
  }
  Index mirrored(Index place) {
    const double low = corners_ ? 0 : -0.5, both = 2 * (corners_ ? size_ - 1 : size_);
    if (both <= 0) return f_.mul(place, f_.number(0));
    const Index span = f_.number(both), from_low = low == 0 ? place : f_.sub(place, f_.number(low));
    const Index away = f_.unary(Operation::ABS, from_low);
    const Index flips = f_.unary(Operation::FLOOR, f_.div(away, span));
    const Index rest = f_.sub(away, f_.mul(flips, span));
    const Index back = f_.minimum(rest, f_.sub(span, rest));
    return low == 0 ? back : f_.add(back, f_.number(low));
  }
  Tap inside_of(Index place) {
    Tap tap;
    const Index zero = f_.number(0), last = f_.number(size_ - 1);
    tap.inside = f_.truth(Operation::LOGICAL_AND, f_.truth(Operation::GREATER_EQUAL, place, zero),
                          f_.truth(Operation::LESS_EQUAL, place, last));
    tap.place = f_.where(tap.inside, place, zero, place);  // NaN, too
    return tap;
  }
  /// The cubic kernel of a = -0.75 over four elements, each of which is taken where it comes back to.
  std::vector<Tap> cubic(Index place) {
    constexpr double kA = -0.75;
    const Index lower = f_.unary(Operation::FLOOR, place), t = f_.sub(place, lower),
                rest = f_.sub(f_.number(1), t);
    const auto near = [&](Index x) {  // ((A + 2) x - (A + 3)) x^2 + 1
      const Index slope = f_.sub(f_.mul(x, f_.number(kA + 2)), f_.number(kA + 3));
      return f_.add(f_.mul(slope, f_.mul(x, x)), f_.number(1));
    };
    const auto far = [&](Index x) {  // ((A x - 5 A) x + 8 A) x - 4 A
      const Index line = f_.sub(f_.mul(x, f_.number(kA)), f_.number(5 * kA));
      return f_.sub(f_.mul(f_.add(f_.mul(line, x), f_.number(8 * kA)), x), f_.number(4 * kA));
    };
    const std::vector<Index> shares = {far(f_.add(t, f_.number(1))), near(t), near(rest),
                                       far(f_.add(rest, f_.number(1)))};
    std::vector<Tap> taps;
    for (size_t i = 0; i < shares.size(); ++i) {
      const Index one = f_.add(lower, f_.number(static_cast<double>(i) - 1));
      // A mirrored place of half pixels lies between two; LibTorch cuts it off.
      taps.push_back(inside_of(outside_ == Outside::zeros ? one : f_.unary(Operation::FLOOR, returned(one))));
      taps.back().share = shares[i];
    }
    return taps;
  }

  GridFormula& f_;
  double size_;
  Outside outside_;
  bool corners_;
};

/// Rows of pixels of each image by computed places.
class SampledImage {
 public:
  SampledImage(Builder& builder, const Node& node, const Value& image)
      : builder_(builder), node_(node), f_(builder, node), width_(fixed_size(node, image, 3)) {
    const Index in = builder.numbers(node, &image, Layout::channels_last);
    Shape shape = builder.shape_of_tensor(in);
    for (auto* sizes : {&shape.sizes, &shape.signature}) {
      sizes->at(1) = static_cast<int32_t>(fixed_size(node, image, 2) * width_);
      sizes->erase(sizes->begin() + 2);
    }
    pixels_ = builder.like(in, shape);
    builder.reshape(node, in, pixels_);
    sampled_ = builder.shape_of(node, *node.output(), Layout::channels_last);
  }

  /// The element of a row and a column, 0 outside: [N, H, W, C].
  Index at(const Tap& row, const Tap& column) {
    const Index place = f_.add(f_.mul(row.place, f_.number(static_cast<double>(width_))), column.place);
    Shape flat = builder_.shape_of_tensor(place);
    for (auto* sizes : {&flat.sizes, &flat.signature}) sizes->pop_back();
    const Index whole = builder_.cast(node_, place, at::kInt), ids = builder_.like(whole, flat);
    builder_.reshape(node_, whole, ids);
    schema::GatherOptionsT options;
    options.axis = options.batch_dims = 1;
    const Index picked = builder_.like(pixels_, sampled_);
    builder_.emit(Operation::GATHER, {pixels_, ids}, {picked}, options_of(std::move(options)));
    const Index inside = f_.truth(Operation::LOGICAL_AND, row.inside, column.inside);
    return f_.where(inside, picked, f_.number(0), picked);
  }

 private:
  Builder& builder_;
  const Node& node_;
  GridFormula f_;
  int64_t width_;
  Index pixels_ = -1;
  Shape sampled_;
};

/// x, then y, of each pixel.
Index coordinate(Builder& builder, Index grid, int64_t which) {
  Shape shape = builder.shape_of_tensor(grid);
  for (auto* sizes : {&shape.sizes, &shape.signature}) sizes->back() = 1;
  const Index made = builder.like(grid, shape);
  builder.emit(Operation::SLICE, {grid, builder.ints({0, 0, 0, which}), builder.ints({-1, -1, -1, 1})},
               {made});
  return made;
}

void grid_sampler(Builder& builder, const Node& node) {
  const Value &x = *value_arg(node, "input"), &grid = *value_arg(node, "grid");
  if (rank_of(node, x) != 4) refuse(node, "expected images");
  const auto sampling = Sampling{int_arg(node, "interpolation_mode")};
  const auto outside = Outside{int_arg(node, "padding_mode")};
  const bool corners = bool_arg(node, "align_corners");
  constexpr int64_t kMostPixels = 1 << 24;  // places are whole numbers in floats
  const int64_t height = fixed_size(node, x, 2), width = fixed_size(node, x, 3);
  if (height * width > kMostPixels)
    refuse(node, "expected images of at most ", kMostPixels, " pixels, got ", height * width);
  const Index places = builder.numbers(node, &grid);
  GridFormula f(builder, node);
  const std::vector<Tap>
      columns = GridAxis(f, width, outside, corners).taps(coordinate(builder, places, 0), sampling),
      rows = GridAxis(f, height, outside, corners).taps(coordinate(builder, places, 1), sampling);
  SampledImage image(builder, node, x);
  Index sum = -1;
  for (const Tap& row : rows) {
    Index line = -1;
    for (const Tap& column : columns) {
      const Index one = image.at(row, column);
      const Index part = column.share < 0 ? one : f.mul(one, column.share);
      line = line < 0 ? part : f.add(line, part);
    }
    if (row.share >= 0) line = f.mul(line, row.share);
    sum = sum < 0 ? line : f.add(sum, line);
  }
  builder.place(node.output(), sum, Layout::channels_last);
}

}  // namespace

ConverterTable sampled_converters() {
  static constexpr Converter kTable[] = {{"aten::grid_sampler", grid_sampler}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
