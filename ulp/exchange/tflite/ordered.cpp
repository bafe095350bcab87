// Sorting, and elements by places that are computed.
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "ulp/exchange/tflite/along.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;

Shape swapped_last(Shape shape, int64_t dim) {
  for (auto* sizes : {&shape.sizes, &shape.signature})
    std::swap(sizes->at(static_cast<size_t>(dim)), sizes->back());
  return shape;
}

/// A dimension and the last one the other way round.
void swap_last(Builder& builder, Index from, Index to, int64_t dim) {
  std::vector<int64_t> order(builder.shape_of_tensor(from).sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order.at(static_cast<size_t>(dim)), order.back());
  builder.emit(Operation::TRANSPOSE, {from, builder.ints(order)}, {to},
               options_of(schema::TransposeOptionsT()));
}

/// The numbers of a value with `dim` as the last dimension.
Index with_last(Builder& builder, const Node& node, const Value& value, int64_t dim) {
  const Index in = builder.numbers(node, &value);
  if (dim + 1 == rank_of(node, value)) return in;
  const Index turned = builder.like(in, swapped_last(builder.shape_of_tensor(in), dim));
  swap_last(builder, in, turned, dim);
  return turned;
}

/// A tensor for the node's result i with `dim` as the last dimension, and what puts it in its place.
class LastResult {
 public:
  LastResult(Builder& builder, const Node& node, size_t i, int64_t dim)
      : builder_(builder), dim_(dim), made_(builder.make_numbers(node, node.output(i), Layout::as_is)) {
    const Shape shape = builder.shape_of_tensor(made_);
    last_ = dim + 1 == std::ssize(shape.sizes) ? made_ : builder.like(made_, swapped_last(shape, dim));
  }
  Index last() const { return last_; }
  void finish() const {
    if (last_ != made_) swap_last(builder_, last_, made_, dim_);
  }

 private:
  Builder& builder_;
  int64_t dim_;
  Index made_, last_ = -1;
};

/// The k largest in falling order; equal ones keep theirs, as the operator has it. The smallest are the
/// largest of -x.
void sort(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const bool places_alone = node.is("aten::argsort"), top = node.is("aten::topk");
  const int64_t rank = rank_of(node, x), dim = dim_arg(node, "dim", rank);
  if (rank == 0) refuse(node, "expected one dimension or more");
  const bool falls = bool_arg(node, top ? "largest" : "descending");
  const int64_t count = top ? int_arg(node, "k") : fixed_size(node, x, dim);
  const at::ScalarType type = exchange::type_of(x);
  if (!falls && type != at::kFloat) refuse(node, "expected floats to be sorted in rising order");
  const auto negative = [&](Index from, Index to) { builder.emit(Operation::NEG, {from}, {to}); };
  Index in = with_last(builder, node, x, dim);
  if (!falls) {
    const Index other = builder.like(in, builder.shape_of_tensor(in));
    negative(in, other);
    in = other;
  }
  Shape shape = builder.shape_of_tensor(in);
  for (auto* sizes : {&shape.sizes, &shape.signature}) sizes->back() = static_cast<int32_t>(count);
  std::optional<LastResult> sorted;
  if (!places_alone) sorted.emplace(builder, node, 0, dim);
  const Index values = sorted && falls ? sorted->last() : builder.like(in, shape),
              ids = builder.between(node, shape, schema::TensorType::INT32);
  builder.emit(Operation::TOPK_V2, {in, builder.constant(torch::full({}, count, torch::kInt))},
               {values, ids});
  if (sorted && !falls) negative(values, sorted->last());
  if (sorted) sorted->finish();
  if (sorted && builder.graph().users(node.output(1)).empty()) return;
  const LastResult places(builder, node, sorted ? 1 : 0, dim);
  const Index wide = builder.cast(node, ids, at::kLong);
  builder.reshape(node, wide, places.last());
  places.finish();
}

/// An element of each row along a dimension by a computed place; the other sizes are those of the rows.
void gather(Builder& builder, const Node& node) {
  const Value &x = *value_arg(node, "self"), &index = *value_arg(node, "index");
  const int64_t rank = rank_of(node, x), dim = dim_arg(node, "dim", rank);
  std::vector<graph::SizeExpr> rows = sizes_of(node, x), wanted = sizes_of(node, index);
  rows.at(static_cast<size_t>(dim)) = wanted.at(static_cast<size_t>(dim));
  if (rows != wanted) refuse(node, "expected places for all rows");
  schema::GatherOptionsT options;
  options.axis = static_cast<int32_t>(rank) - 1;
  options.batch_dims = static_cast<int32_t>(rank) - 1;
  const Index in = with_last(builder, node, x, dim), ids = with_last(builder, node, index, dim);
  const LastResult result(builder, node, 0, dim);
  builder.emit(Operation::GATHER, {in, ids}, {result.last()}, options_of(std::move(options)));
  result.finish();
}

/// One tensor of places for one dimension; those below 0 are counted from the end.
void index(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const graph::Argument& list = node.arg("indices");
  int64_t dim = -1;
  for (int64_t d = 0; d < std::ssize(list.items); ++d) {
    if (!list.items[static_cast<size_t>(d)].is_value()) continue;
    if (dim >= 0) refuse(node, "expected places for one dimension");
    dim = d;
  }
  if (dim < 0) refuse(node, "expected places for one dimension");
  const Value& places = *list.items[static_cast<size_t>(dim)].value;
  const at::ScalarType type = exchange::type_of(places);
  if (type != at::kLong && type != at::kInt) refuse(node, "expected places that are whole numbers");
  const Index size = builder.number(node, fixed_size(node, x, dim), type);
  Index ids = -1;
  if (const at::Tensor stored = builder.stored(places); stored.defined()) {
    ids = builder.constant(stored.remainder(fixed_size(node, x, dim)));
  } else {
    const Index given = builder.numbers(node, &places);
    ids = builder.like(given, builder.shape_of_tensor(given));
    builder.emit(Operation::FLOOR_MOD, {given, size}, {ids});
  }
  schema::GatherOptionsT options;
  options.axis = static_cast<int32_t>(dim);
  builder.emit(Operation::GATHER, {builder.numbers(node, &x), ids},
               {builder.make_numbers(node, node.output(), Layout::as_is)}, options_of(std::move(options)));
}

}  // namespace

ConverterTable ordered_converters() {
  static constexpr Converter kTable[] = {{"aten::sort", sort},
                                         {"aten::argsort", sort},
                                         {"aten::topk", sort},
                                         {"aten::gather", gather},
                                         {"aten::index", index}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
