// Ops that change the shape of a tensor and leave its elements as they are, or repeat them.
#include <algorithm>
#include <numeric>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::SizeExpr;
using graph::Value;

/// The sizes of a reshape's result as ONNX can say them in a constant: -1 for one free size, 0 for those that the
/// input has in the same place. Empty where that is not enough.
std::vector<int64_t> constant_target(const std::vector<SizeExpr>& from, const std::vector<SizeExpr>& to) {
  std::vector<int64_t> target;
  std::vector<size_t> free;
  for (const SizeExpr& size : to) {
    if (!size.constant()) free.push_back(target.size());
    target.push_back(size.offset);
  }
  for (size_t& place : free) {
    const bool kept = free.size() > 1 && place < from.size() && from[place] == to[place];
    target[place] = kept ? 0 : -1;
  }
  return std::ranges::count(target, -1) <= 1 ? target : std::vector<int64_t>();
}

void reshape(Builder& builder, const Node& node) {
  reshape_to_output(builder, node, builder.in(node, "self"));
}

void transpose(Builder& builder, const Node& node, std::vector<int64_t> order) {
  const Value& x = *value_arg(node, "self");
  if (const at::Tensor stored = builder.graph().attribute_tensor(&x); stored.defined()) {
    std::string form = "permuted";
    for (const int64_t dim : order) form += " " + std::to_string(dim);
    const auto permuted = [&] { return stored.permute(order); };
    return builder.alias(node.output(), builder.derived(x.producer->target(), form, permuted));
  }
  builder.result(node, "Transpose", {builder.in(node, "self")}, {{"perm", std::move(order)}});
}

std::vector<int64_t> straight(int64_t rank) {
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

void swap(Builder& builder, const Node& node) {
  const int64_t rank = rank_of(node, *value_arg(node, "self"));
  std::vector<int64_t> order = straight(rank);
  std::swap(order.at(static_cast<size_t>(dim_arg(node, "dim0", rank))),
            order.at(static_cast<size_t>(dim_arg(node, "dim1", rank))));
  transpose(builder, node, std::move(order));
}

void turn(Builder& builder, const Node& node) {
  if (before_turn(builder.graph(), *node.output()) != nullptr)
    return;  // linear layers read the weight itself
  const int64_t rank = rank_of(node, *value_arg(node, "self"));
  std::vector<int64_t> order = straight(rank);
  std::ranges::reverse(order);
  transpose(builder, node, std::move(order));
}

void permute(Builder& builder, const Node& node) {
  const int64_t rank = rank_of(node, *value_arg(node, "self"));
  std::vector<int64_t> order = ints_arg(node, "dims");
  for (int64_t& dim : order) dim += dim < 0 ? rank : 0;
  transpose(builder, node, std::move(order));
}

void movedim(Builder& builder, const Node& node) {
  const int64_t rank = rank_of(node, *value_arg(node, "self"));
  const std::vector<int64_t> from = ints_arg(node, "source"), to = ints_arg(node, "destination");
  const auto place = [&](int64_t dim) { return dim < 0 ? dim + rank : dim; };
  std::vector<int64_t> order(static_cast<size_t>(rank), -1), rest = straight(rank);
  for (size_t i = 0; i < from.size(); ++i) {
    order.at(static_cast<size_t>(place(to[i]))) = place(from[i]);
    std::erase(rest, place(from[i]));
  }
  auto next = rest.begin();
  for (int64_t& dim : order) {
    if (dim < 0) dim = *next++;
  }
  transpose(builder, node, std::move(order));
}

void expand(Builder& builder, const Node& node) {
  builder.result(node, "Expand",
                 {builder.in(node, "self"), builder.sizes(node, sizes_of(node, *node.output()))});
}

void repeat(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const std::vector<SizeExpr> times = sizes_arg(node, "repeats");
  std::vector<SizeExpr> shape(times.size() - static_cast<size_t>(rank_of(node, x)), SizeExpr{0, 1, 1});
  const bool widens = !shape.empty();
  shape.insert(shape.end(), sizes_of(node, x).begin(), sizes_of(node, x).end());
  const std::string& name = builder.name_of(&x);
  const std::string wide = widens ? builder.call(node, "Reshape", {name, builder.sizes(node, shape)}) : name;
  builder.result(node, "Tile", {wide, builder.sizes(node, times)});
}

}  // namespace

void reshape_to_output(Builder& builder, const Node& node, const std::string& x) {
  const std::vector<SizeExpr>& to = sizes_of(node, *node.output());
  const Value* from = node.args.at(0).value;
  const std::vector<int64_t> target =
      constant_target(from != nullptr && from->meta ? from->meta->sizes : std::vector<SizeExpr>(), to);
  const bool known = !target.empty() || to.empty();
  builder.result(node, "Reshape", {x, known ? builder.ints(target) : builder.sizes(node, to)});
}

ConverterTable shape_converters() {
  static constexpr Converter kTable[] = {
      {"aten::view", reshape},      {"aten::reshape", reshape},    {"aten::_unsafe_view", reshape},
      {"aten::view_as", reshape},   {"aten::reshape_as", reshape}, {"aten::flatten", reshape},
      {"aten::unflatten", reshape}, {"aten::squeeze", reshape},    {"aten::unsqueeze", reshape},
      {"aten::transpose", swap},    {"aten::swapdims", swap},      {"aten::t", turn},
      {"aten::permute", permute},   {"aten::movedim", movedim},    {"aten::moveaxis", movedim},
      {"aten::expand", expand},     {"aten::expand_as", expand},   {"aten::broadcast_to", expand},
      {"aten::repeat", repeat}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
