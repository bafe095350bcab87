// Ops that change the shape of a tensor and leave its elements as they are, or repeat them. Codes stay codes.
#include <algorithm>
#include <numeric>

#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;
using Order = std::vector<int64_t>;

/// Whether the value is read by linear layers with stored weights alone, be it as numbers or as codes: they
/// can have their columns in another order.
bool feeds_linear_alone(const Builder& builder, const Value& value) {
  const auto readers = builder.graph().users(&value);
  return !readers.empty() && std::ranges::all_of(readers, [&](const Node* reader) {
    if (reader->is("ulp::quantize") || reader->is("ulp::dequantize"))
      return feeds_linear_alone(builder, *reader->output());
    return reader->is("aten::linear") && reader->arg("input").value == &value &&
           reader->arg("weight").value != &value && builder.stored(*reader->arg("weight").value).defined();
  });
}

/// [N, C, ...] to [N, C ...]: a result of linear layers.
bool is_flatten(const Shape& from, const Shape& to) {
  return to.sizes.size() == 2 && from.sizes.size() > 2 && to.sizes[0] == from.sizes[0];
}

/// Elements of an image in their order whatever its layout.
bool same_in_both(const Shape& from) {
  const int64_t pixels =
      std::accumulate(from.sizes.begin() + 2, from.sizes.end(), int64_t{1}, std::multiplies<>());
  return pixels == 1 || from.sizes[1] == 1;
}

void reshape(Builder& builder, const Node& node) {
  const Value& x = *node.args.at(0).value;
  const bool integer = builder.has_codes(&x);
  const Shape from = builder.shape_of(node, x), to = builder.shape_of(node, *node.output());
  Layout read = Layout::as_is, made = Layout::as_is;
  if (builder.layout_of(&x) == Layout::channels_last) {
    if (same_in_both(from)) {
      read = Layout::channels_last;
    } else if (is_flatten(from, to) && feeds_linear_alone(builder, *node.output())) {
      read = Layout::channels_last;
      made = Layout::flattened;
      builder.flatten(node.output(), from.sizes[1]);
    }
  }
  const Index in = builder.tensor_of(node, &x, read, integer);
  builder.reshape(node, in, builder.make_moved(node, node.output(), made, &x, integer));
}

/// The order in which a value of this rank lies in the file.
Order order_of(Layout layout, size_t rank) {
  Order order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (layout == Layout::channels_last) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}

void transpose(Builder& builder, const Node& node, const Order& order) {
  const Value& x = *value_arg(node, "self");
  const bool integer = builder.has_codes(&x);
  // Where a transpose says the same as a layout, nothing is to be done.
  for (const auto& [read, made] :
       {std::pair(Layout::channels_last, Layout::as_is), std::pair(Layout::as_is, Layout::channels_last)}) {
    if (order.size() < 3 || !builder.is_there(&x, read)) continue;
    Order both;
    for (const int64_t dim : order_of(made, order.size())) both.push_back(order[static_cast<size_t>(dim)]);
    if (both != order_of(read, order.size())) continue;
    const Index same = builder.tensor_of(node, &x, read, integer);
    return builder.place(node.output(), same, made, integer ? &x : nullptr);
  }
  const Index in = builder.tensor_of(node, &x, Layout::as_is, integer);
  const Index made = builder.make_moved(node, node.output(), Layout::as_is, &x, integer);
  builder.emit(Operation::TRANSPOSE, {in, builder.ints(order)}, {made},
               options_of(schema::TransposeOptionsT()));
}

/// transpose, swapdims, t, permute, movedim and moveaxis.
void permute(Builder& builder, const Node& node) {
  transpose(builder, node, permuted_dims(node));
}

/// mT: the last two the other way round.
void turn_matrices(Builder& builder, const Node& node) {
  Order order = order_of(Layout::as_is, static_cast<size_t>(rank_of(node, *value_arg(node, "self"))));
  if (order.size() < 2) refuse(node, "expected matrices");
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  transpose(builder, node, order);
}

/// How often each dimension of the result has those of the operand, whose leading ones may be missing.
void tile(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const bool integer = builder.has_codes(&x);
  Order times = ints_arg(node, node.is("aten::repeat") ? "repeats" : "dims");
  Shape shape = builder.shape_of(node, x);
  const size_t rank = static_cast<size_t>(rank_of(node, *node.output()));
  times.insert(times.begin(), rank - times.size(), 1);
  Index in = builder.tensor_of(node, &x, Layout::as_is, integer);
  if (shape.sizes.size() < rank) {
    for (auto* sizes : {&shape.sizes, &shape.signature})
      sizes->insert(sizes->begin(), rank - sizes->size(), 1);
    const Index wide = builder.like(in, shape);
    builder.reshape(node, in, wide);
    in = wide;
  }
  builder.emit(Operation::TILE, {in, builder.ints(times)},
               {builder.make_moved(node, node.output(), Layout::as_is, &x, integer)});
}

void expand(Builder& builder, const Node& node) {
  const Shape shape = builder.shape_of(node, *node.output());
  if (builder.free_batch() && shape.signature != shape.sizes)
    refuse(node, "expected a batch that is a number for this shape");
  const Value& x = *value_arg(node, "self");
  const Index in = builder.numbers(node, &x), made = builder.make_numbers(node, node.output(), Layout::as_is);
  builder.emit(Operation::BROADCAST_TO, {in, builder.ints({shape.sizes.begin(), shape.sizes.end()})}, {made},
               {}, 2);
}

}  // namespace

ConverterTable shape_converters() {
  static constexpr Converter kTable[] = {
      {"aten::view", reshape},      {"aten::reshape", reshape},    {"aten::_unsafe_view", reshape},
      {"aten::view_as", reshape},   {"aten::reshape_as", reshape}, {"aten::flatten", reshape},
      {"aten::unflatten", reshape}, {"aten::squeeze", reshape},    {"aten::unsqueeze", reshape},
      {"aten::transpose", permute}, {"aten::swapdims", permute},   {"aten::t", permute},
      {"aten::movedim", permute},   {"aten::moveaxis", permute},   {"aten::mT", turn_matrices},
      {"aten::tile", tile},         {"aten::repeat", tile},        {"aten::permute", permute},
      {"aten::expand", expand},     {"aten::expand_as", expand},   {"aten::broadcast_to", expand}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
