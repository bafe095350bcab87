// Joining tensors and taking pieces of them. Codes stay codes.
#include <algorithm>
#include <limits>
#include <optional>

#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Argument;
using graph::Node;
using graph::Value;
using schema::Operation;

std::vector<const Value*> list_of(const Node& node) {
  const Argument& list = node.arg("tensors");
  if (list.kind != Argument::Kind::list || list.items.empty()) refuse(node, "expected a list of tensors");
  std::vector<const Value*> values;
  for (const Argument& item : list.items) {
    if (!item.is_value()) refuse(node, "expected a list of tensors");
    values.push_back(item.value);
  }
  return values;
}

Layout layout_of(const Builder& builder, const std::vector<const Value*>& values) {
  const auto is_last = [&](const Value* one) { return builder.layout_of(one) == Layout::channels_last; };
  return std::ranges::any_of(values, is_last) ? Layout::channels_last : Layout::as_is;
}

/// The operator copies codes: those of other steps are brought to the result's before.
Index with_steps(Builder& builder, const Node& node, const Value* value, Layout layout, const Steps& steps) {
  const Index codes = builder.codes(node, value, layout);
  if (builder.steps_of(value) == steps) return codes;
  const Index made = builder.between(node, builder.shape_of_tensor(codes), steps);
  builder.emit(Operation::QUANTIZE, {codes}, {made});
  return made;
}

void cat(Builder& builder, const Node& node) {
  const std::vector<const Value*> values = list_of(node);
  const bool codes = std::ranges::all_of(values, [&](const Value* one) { return builder.has_codes(one); });
  const auto has_first_steps = [&](const Value* one) {
    return builder.steps_of(one) == builder.steps_of(values[0]);
  };
  Ending ending = builder.ending_of(node, codes);
  if (!ending.integer || ending.fused != schema::Activation::NONE) {
    ending = {.result = node.output()};
    if (codes && std::ranges::all_of(values, has_first_steps)) {
      ending.integer = true;
      ending.steps = builder.steps_of(values[0]);
    }
  }
  const Layout layout = layout_of(builder, values);
  Indices parts;
  for (const Value* one : values)
    parts.push_back(ending.integer ? with_steps(builder, node, one, layout, ending.steps)
                                   : builder.numbers(node, one, layout));
  const int64_t rank = rank_of(node, *node.output());
  schema::ConcatenationOptionsT options;
  options.axis = static_cast<int32_t>(axis_in(layout, dim_arg(node, "dim", rank), rank));
  const Index made = builder.result(node, ending, layout);
  builder.emit(Operation::CONCATENATION, std::move(parts), {made}, options_of(std::move(options)));
}

void stack(Builder& builder, const Node& node) {
  const int64_t rank = rank_of(node, *node.output());
  Indices parts;
  for (const Value* one : list_of(node)) {
    Shape shape = builder.shape_of(node, *node.output());
    for (auto* sizes : {&shape.sizes, &shape.signature})
      sizes->at(static_cast<size_t>(dim_arg(node, "dim", rank))) = 1;
    const Index from = builder.numbers(node, one), row = builder.like(from, shape);
    builder.reshape(node, from, row);
    parts.push_back(row);
  }
  schema::ConcatenationOptionsT options;
  options.axis = static_cast<int32_t>(dim_arg(node, "dim", rank));
  builder.emit(Operation::CONCATENATION, std::move(parts),
               {builder.make_numbers(node, node.output(), Layout::as_is)}, options_of(std::move(options)));
}

/// Where a piece begins along one dimension, which it has `size` elements of.
struct Piece {
  int64_t dim = 0, start = 0, size = 0;
};

void cut(Builder& builder, Index from, Index to, const Piece& piece, Layout layout) {
  const auto rank = std::ssize(builder.shape_of_tensor(from).sizes);
  std::vector<int64_t> begin(static_cast<size_t>(rank), 0),
      sizes(static_cast<size_t>(rank), -1);  // -1: all of it
  const auto axis = static_cast<size_t>(axis_in(layout, piece.dim, rank));
  begin[axis] = piece.start;
  sizes[axis] = piece.size;
  builder.emit(Operation::SLICE, {from, builder.ints(begin), builder.ints(sizes)}, {to});
}

void take(Builder& builder, const Node& node, const Value& x, const Value& output, const Piece& piece) {
  const bool integer = builder.has_codes(&x);
  const Layout layout = builder.layout_of(&x);
  const Index from = builder.tensor_of(node, &x, layout, integer);
  cut(builder, from, builder.make_moved(node, &output, layout, &x, integer), piece, layout);
}

/// Of a dimension that the user may change where the batch is free: its size is not known.
bool is_free(const Builder& builder, const graph::SizeExpr& size) {
  return builder.free_batch() && !size.constant();
}

/// The elements start, start + step, ... before `end` of a dimension, counted from either end, as LiteRT
/// finds them when it runs. `end`: none for all that follow. `drop`: of one element, whose dimension goes.
struct Stride {
  int64_t dim = 0, start = 0;
  std::optional<int64_t> end = std::nullopt;
  int64_t step = 1;
  bool drop = false;
};

void strided(Builder& builder, const Node& node, const Stride& stride) {
  const Value& x = *value_arg(node, "self");
  const int64_t rank = rank_of(node, x);
  const bool integer = builder.has_codes(&x);
  const Layout layout = stride.drop ? Layout::as_is : builder.layout_of(&x);
  const Index from = builder.tensor_of(node, &x, layout, integer);
  std::vector<int64_t> begin(static_cast<size_t>(rank), 0), end = begin, steps(static_cast<size_t>(rank), 1);
  const auto axis = static_cast<size_t>(axis_in(layout, stride.dim, rank));
  begin[axis] = stride.start;
  end[axis] = stride.end.value_or(0);
  steps[axis] = stride.step;
  schema::StridedSliceOptionsT options;  // a bit for each dimension that is taken whole
  const uint32_t whole = ((1U << rank) - 1U) & ~(1U << axis);
  options.begin_mask = static_cast<int32_t>(whole);
  options.end_mask = static_cast<int32_t>(stride.end ? whole : whole | (1U << axis));
  options.shrink_axis_mask = static_cast<int32_t>(stride.drop ? 1U << axis : 0U);
  builder.emit(Operation::STRIDED_SLICE, {from, builder.ints(begin), builder.ints(end), builder.ints(steps)},
               {builder.make_moved(node, node.output(), layout, &x, integer)},
               options_of(std::move(options)));
}

/// chunk, split and split_with_sizes: what they make says where they cut.
void split(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const int64_t dim = dim_arg(node, "dim", rank_of(node, x));
  if (is_free(builder, sizes_of(node, x).at(static_cast<size_t>(dim))))
    refuse(node, "expected a batch that is a number for what cuts it");
  int64_t start = 0;
  for (const auto& output : node.outputs()) {
    const int64_t size = builder.size_of(sizes_of(node, *output).at(static_cast<size_t>(dim)));
    if (!builder.graph().users(output.get()).empty()) take(builder, node, x, *output, {dim, start, size});
    start += size;
  }
}

/// One index of a dimension, which goes.
void pick(Builder& builder, const Node& node, int64_t dim, int64_t index, const Value& output) {
  const Value& x = *value_arg(node, "self");
  const bool integer = builder.has_codes(&x);
  const Index from = builder.tensor_of(node, &x, Layout::as_is, integer);
  Shape shape = builder.shape_of(node, x);
  for (auto* sizes : {&shape.sizes, &shape.signature}) sizes->at(static_cast<size_t>(dim)) = 1;
  const Index row = builder.like(from, shape);
  cut(builder, from, row, {dim, index, 1}, Layout::as_is);
  builder.reshape(node, row, builder.make_moved(node, &output, Layout::as_is, &x, integer));
}

void unbind(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const int64_t dim = dim_arg(node, "dim", rank_of(node, x));
  if (is_free(builder, sizes_of(node, x).at(static_cast<size_t>(dim))))
    refuse(node, "expected a batch that is a number for what cuts it");
  for (size_t i = 0; i < node.outputs().size(); ++i)
    pick(builder, node, dim, static_cast<int64_t>(i), *node.output(i));
}

/// A place counted from either end, within the dimension.
int64_t place_in(int64_t size, int64_t place) {
  return std::clamp<int64_t>(place < 0 ? place + size : place, 0, size);
}

/// A place in a dimension; a number where the batch is free.
int64_t place_arg(const Builder& builder, const Node& node, const char* argument) {
  const graph::SizeExpr place = size_arg(node, node.arg(argument));
  if (is_free(builder, place)) refuse(node, "expected a batch that is a number for this '", argument, "'");
  return builder.size_of(place);
}

void select(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const int64_t dim = dim_arg(node, "dim", rank_of(node, x)), index = place_arg(builder, node, "index");
  const graph::SizeExpr& all = sizes_of(node, x).at(static_cast<size_t>(dim));
  if (is_free(builder, all)) {
    const std::optional<int64_t> end = index == -1 ? std::nullopt : std::optional(index + 1);
    return strided(builder, node, {.dim = dim, .start = index, .end = end, .drop = true});
  }
  pick(builder, node, dim, place_in(builder.size_of(all), index), *node.output());
}

void slice(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const int64_t rank = rank_of(node, x), dim = dim_arg(node, "dim", rank), step = int_arg(node, "step");
  const graph::SizeExpr& all = sizes_of(node, x).at(static_cast<size_t>(dim));
  const int64_t given = node.arg("start").is_none() ? 0 : place_arg(builder, node, "start");
  std::optional<int64_t> last;
  if (!node.arg("end").is_none()) last = place_arg(builder, node, "end");
  if (last && *last > std::numeric_limits<int32_t>::max()) last = std::nullopt;  // how exporters say "all"
  if (is_free(builder, all))
    return strided(builder, node, {.dim = dim, .start = given, .end = last, .step = step});
  const int64_t size = builder.size_of(all), start = place_in(size, given),
                end = last ? place_in(size, *last) : size;
  const int64_t count = (end - start + step - 1) / step,
                seen = builder.size_of(sizes_of(node, *node.output()).at(static_cast<size_t>(dim)));
  if (count < 1 || count != seen)
    refuse(node, "expected a slice of as many elements as at capture, ", seen, ", got ", count);
  if (step == 1) return take(builder, node, x, *node.output(), {dim, start, end - start});
  const int64_t behind = start + (count - 1) * step + 1;  // of the last one that is taken
  strided(builder, node, {.dim = dim, .start = start, .end = behind, .step = step});
}

void narrow(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const int64_t dim = dim_arg(node, "dim", rank_of(node, x)), start = place_arg(builder, node, "start"),
                length = place_arg(builder, node, "length");
  const graph::SizeExpr& all = sizes_of(node, x).at(static_cast<size_t>(dim));
  if (start < 0 && is_free(builder, all)) refuse(node, "expected a start that is counted from the front");
  const int64_t from = start < 0 ? start + builder.size_of(all) : start;
  take(builder, node, x, *node.output(), {dim, from, length});
}

/// Rows of a table, or of any dimension, by their numbers.
void gather(Builder& builder, const Node& node, const Value& x, const Value& ids, int64_t dim) {
  schema::GatherOptionsT options;
  options.axis = static_cast<int32_t>(dim);
  const Index from = builder.numbers(node, &x), which = builder.numbers(node, &ids);
  builder.emit(Operation::GATHER, {from, which}, {builder.make_numbers(node, node.output(), Layout::as_is)},
               options_of(std::move(options)));
}

void embedding(Builder& builder, const Node& node) {
  gather(builder, node, *value_arg(node, "weight"), *value_arg(node, "indices"), 0);
}

void index_select(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  gather(builder, node, x, *value_arg(node, "index"), dim_arg(node, "dim", rank_of(node, x)));
}

}  // namespace

int64_t axis_in(Layout layout, int64_t dim, int64_t rank) {
  if (layout != Layout::channels_last || dim == 0) return dim;
  return dim == 1 ? rank - 1 : dim - 1;
}

ConverterTable piece_converters() {
  static constexpr Converter kTable[] = {
      {"aten::cat", cat},       {"aten::concat", cat},          {"aten::stack", stack},
      {"aten::chunk", split},   {"aten::split", split},         {"aten::split_with_sizes", split},
      {"aten::unbind", unbind}, {"aten::select", select},       {"aten::slice", slice},
      {"aten::narrow", narrow}, {"aten::embedding", embedding}, {"aten::index_select", index_select}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
