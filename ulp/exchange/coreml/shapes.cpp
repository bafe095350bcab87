// Ops that change the shape of a tensor and leave its elements as they are, or repeat them.
#include "ulp/exchange/coreml/converters.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;
using graph::Value;

void reshape(Builder& builder, const Node& node) {
  const Value& x = *node.args.at(0).value;
  if (shape_of(node, x) == shape_of(node)) return builder.alias(node.output(), builder.name_of(&x));
  builder.result(node, "reshape", {{"x", builder.name_of(&x)}, {"shape", builder.ints(shape_of(node))}});
}

void permute(Builder& builder, const Node& node) {
  builder.result(node, "transpose",
                 {{"x", builder.in(node, "self")}, {"perm", builder.ints(permuted_dims(node))}});
}

/// A tile of `x` [shape], whose rank may be below that of the result.
void tile(Builder& builder, const Node& node, std::vector<int64_t> shape, std::vector<int64_t> times) {
  const Value& x = *value_arg(node, "self");
  std::string name = builder.name_of(&x);
  if (shape.size() < times.size()) {
    shape.insert(shape.begin(), times.size() - shape.size(), 1);
    name = reshaped(builder, node, name, {type_of(x), shape});
  }
  if (times == std::vector<int64_t>(times.size(), 1)) return builder.alias(node.output(), name);
  builder.result(node, "tile", {{"x", name}, {"reps", builder.ints(times)}});
}

void expand(Builder& builder, const Node& node) {
  const std::vector<int64_t> from = shape_of(node, *value_arg(node, "self")), to = shape_of(node);
  std::vector<int64_t> times = to;
  const size_t added = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] == to[added + d]) times[added + d] = 1;
  }
  tile(builder, node, from, times);
}

void repeat(Builder& builder, const Node& node) {
  tile(builder, node, shape_of(node, *value_arg(node, "self")), ints_arg(node, "repeats"));
}

/// `dims` may name fewer dimensions than there are.
void tile_by_dims(Builder& builder, const Node& node) {
  const std::vector<int64_t> shape = shape_of(node, *value_arg(node, "self"));
  std::vector<int64_t> times = ints_arg(node, "dims");
  if (times.size() < shape.size()) times.insert(times.begin(), shape.size() - times.size(), 1);
  tile(builder, node, shape, times);
}

}  // namespace

std::string reshaped(Builder& builder, const Node& node, const std::string& x, Type type) {
  const std::string shape = builder.ints(type.shape);
  return builder.call(node, "reshape", {{"x", x}, {"shape", shape}}, std::move(type));
}

std::string transposed(Builder& builder, const Node& node, const std::string& x,
                       const std::vector<int64_t>& order, Type type) {
  return builder.call(node, "transpose", {{"x", x}, {"perm", builder.ints(order)}}, std::move(type));
}

ConverterTable shape_converters() {
  static constexpr Converter kTable[] = {
      {"aten::view", reshape},      {"aten::reshape", reshape},    {"aten::_unsafe_view", reshape},
      {"aten::view_as", reshape},   {"aten::reshape_as", reshape}, {"aten::flatten", reshape},
      {"aten::unflatten", reshape}, {"aten::squeeze", reshape},    {"aten::unsqueeze", reshape},
      {"aten::transpose", permute}, {"aten::swapdims", permute},   {"aten::t", permute},
      {"aten::permute", permute},   {"aten::movedim", permute},    {"aten::moveaxis", permute},
      {"aten::expand", expand},     {"aten::expand_as", expand},   {"aten::broadcast_to", expand},
      {"aten::repeat", repeat},     {"aten::tile", tile_by_dims},  {"aten::mT", permute}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
