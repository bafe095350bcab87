// Taking tensors apart and putting them together.
#include <limits>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Argument;
using graph::Node;
using graph::SizeExpr;
using graph::Value;

/// The tensors of a list.
Names list_of(Builder& builder, const Node& node) {
  const Argument& tensors = node.args.at(0);
  if (tensors.kind != Argument::Kind::list) refuse(node, "expected a list of tensors");
  Names names;
  for (const Argument& item : tensors.items) {
    if (!item.is_value()) refuse(node, "expected a list of tensors");
    names.push_back(builder.name_of(item.value));
  }
  return names;
}

void cat(Builder& builder, const Node& node) {
  builder.result(node, "Concat", list_of(builder, node), {{"axis", int_arg(node, "dim")}});
}

void stack(Builder& builder, const Node& node) {
  const int64_t dim = int_arg(node, "dim");
  Names rows;
  for (const std::string& one : list_of(builder, node))
    rows.push_back(builder.call(node, "Unsqueeze", {one, builder.ints({dim})}));
  builder.result(node, "Concat", std::move(rows), {{"axis", dim}});
}

/// chunk, split and split_with_sizes: what they make says where they cut.
void split(Builder& builder, const Node& node) {
  const int64_t dim = int_arg(node, "dim");
  std::vector<int64_t> pieces;
  for (const auto& output : node.outputs()) pieces.push_back(fixed_size(node, *output, dim));
  builder.results(node, "Split", {builder.in(node, "self"), builder.ints(pieces)}, {{"axis", dim}});
}

/// Index `at` of a dimension, which goes.
void pick(Builder& builder, const Node& node, const std::string& at, int64_t dim, size_t output) {
  builder.result(node, "Gather", {builder.in(node, "self"), at}, {{"axis", dim}}, output);
}

void unbind(Builder& builder, const Node& node) {
  for (size_t i = 0; i < node.outputs().size(); ++i)
    pick(builder, node, builder.scalar(static_cast<double>(i), at::kLong), int_arg(node, "dim"), i);
}

void select(Builder& builder, const Node& node) {
  const SizeExpr index = size_arg(node, node.arg("index"));
  const std::string at =
      index.constant() ? builder.scalar(static_cast<double>(index.offset), at::kLong)
                       : builder.call(node, "Squeeze", {builder.sizes(node, {index}), builder.ints({0})});
  pick(builder, node, at, int_arg(node, "dim"), 0);
}

/// From `start` to `end`, the latter left out.
std::string sliced(Builder& builder, const Node& node, const std::string& x, int64_t dim,
                   const SizeExpr& start, const SizeExpr& end) {
  return builder.call(node, "Slice",
                      {x, builder.sizes(node, {start}), builder.sizes(node, {end}), builder.ints({dim})});
}

void slice(Builder& builder, const Node& node) {
  const auto bound = [&](const char* argument, int64_t otherwise) {
    const Argument& arg = node.arg(argument);
    return arg.is_none() ? SizeExpr{0, 1, otherwise} : size_arg(node, arg);
  };
  const SizeExpr start = bound("start", 0), end = bound("end", std::numeric_limits<int64_t>::max());
  builder.result(node, "Slice",
                 {builder.in(node, "self"), builder.sizes(node, {start}), builder.sizes(node, {end}),
                  builder.ints({int_arg(node, "dim")}), builder.ints({int_arg(node, "step")})});
}

void narrow(Builder& builder, const Node& node) {
  const int64_t dim = int_arg(node, "dim"), start = int_arg(node, "start");
  if (start < 0) refuse(node, "expected a start that is counted from the front");
  SizeExpr end = size_arg(node, node.arg("length"));
  end.offset += start;
  builder.result(
      node, "Slice",
      {builder.in(node, "self"), builder.ints({start}), builder.sizes(node, {end}), builder.ints({dim})});
}

/// From the last element to the first.
void flip(Builder& builder, const Node& node) {
  const std::vector<int64_t> dims = ints_arg(node, "dims");
  const auto of_each = [&](int64_t value) { return builder.ints(std::vector<int64_t>(dims.size(), value)); };
  builder.result(node, "Slice",
                 {builder.in(node, "self"), of_each(-1), of_each(std::numeric_limits<int64_t>::min()),
                  builder.ints(dims), of_each(-1)});
}

/// What leaves at one end comes in at the other.
void roll(Builder& builder, const Node& node) {
  const std::vector<int64_t> shifts = ints_arg(node, "shifts"), dims = ints_arg(node, "dims");
  if (shifts.empty() || shifts.size() != dims.size()) refuse(node, "expected a shift for each dimension");
  std::string x = builder.in(node, "self");
  const SizeExpr last{0, 1, std::numeric_limits<int64_t>::max()}, first{0, 1, 0};
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t size = fixed_size(node, *value_arg(node, "self"), dims[i]);
    const SizeExpr cut{0, 1, size - ((shifts[i] % size) + size) % size};
    const Names halves = {sliced(builder, node, x, dims[i], cut, last),
                          sliced(builder, node, x, dims[i], first, cut)};
    if (i + 1 == dims.size()) return builder.result(node, "Concat", halves, {{"axis", dims[i]}});
    x = builder.call(node, "Concat", halves, {{"axis", dims[i]}});
  }
}

void index_select(Builder& builder, const Node& node) {
  builder.result(node, "Gather", {builder.in(node, "self"), builder.in(node, "index")},
                 {{"axis", int_arg(node, "dim")}});
}

void gather(Builder& builder, const Node& node) {
  builder.result(node, "GatherElements", {builder.in(node, "self"), builder.in(node, "index")},
                 {{"axis", int_arg(node, "dim")}});
}

/// One tensor of ids in one dimension.
void index(Builder& builder, const Node& node) {
  const Argument& indices = node.arg("indices");
  int64_t dim = -1;
  for (size_t i = 0; i < indices.items.size(); ++i) {
    if (indices.items[i].is_none()) continue;
    if (dim >= 0) refuse(node, "expected ids for one dimension");
    dim = static_cast<int64_t>(i);
  }
  if (dim < 0) refuse(node, "expected ids for one dimension");
  const Argument& ids = indices.items[static_cast<size_t>(dim)];
  if (!ids.is_value() || type_of(*ids.value) == at::kBool) refuse(node, "expected ids that are integers");
  builder.result(node, "Gather", {builder.in(node, "self"), builder.name_of(ids.value)}, {{"axis", dim}});
  builder.counts_from_end(*node.output());
}

}  // namespace

ConverterTable piece_converters() {
  static constexpr Converter kTable[] = {
      {"aten::cat", cat},       {"aten::concat", cat},    {"aten::stack", stack},
      {"aten::chunk", split},   {"aten::split", split},   {"aten::split_with_sizes", split},
      {"aten::unbind", unbind}, {"aten::select", select}, {"aten::slice", slice},
      {"aten::narrow", narrow}, {"aten::roll", roll},     {"aten::index_select", index_select},
      {"aten::gather", gather}, {"aten::index", index},   {"aten::flip", flip}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
