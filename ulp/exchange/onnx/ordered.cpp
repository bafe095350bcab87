// Elements in order, cumulative sums, and elements that are put at places.
#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

/// The first k in order: values, places, or both.
void in_order(Builder& builder, const Node& node, const std::string& k, int64_t dim, bool largest,
              std::pair<const Value*, const Value*> values_and_places) {
  const Names found = builder.calls(node, "TopK", 2, {builder.in(node, "self"), k},
                                    {{"axis", dim}, {"largest", int64_t{largest}}, {"sorted", int64_t{1}}});
  if (values_and_places.first != nullptr) builder.alias(values_and_places.first, found[0]);
  if (values_and_places.second != nullptr) builder.alias(values_and_places.second, found[1]);
}

/// sort and argsort; of equal elements ONNX takes the first one first, as a stable sort.
void sort(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const int64_t dim = dim_arg(node, "dim", rank_of(node, x));
  const std::string k = builder.sizes(node, {sizes_of(node, x)[static_cast<size_t>(dim)]});
  const bool places_alone = node.is("aten::argsort");
  in_order(builder, node, k, dim, bool_arg(node, "descending"),
           places_alone ? std::pair<const Value*, const Value*>{nullptr, node.output()}
                        : std::pair<const Value*, const Value*>{node.output(0), node.output(1)});
}

/// Of equal elements LibTorch promises no order.
void topk(Builder& builder, const Node& node) {
  const int64_t dim = dim_arg(node, "dim", rank_of(node, *value_arg(node, "self")));
  in_order(builder, node, builder.ints({int_arg(node, "k")}), dim, bool_arg(node, "largest"),
           {node.output(0), node.output(1)});
}

void cumsum(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const at::ScalarType type = type_of(*node.output());
  const int64_t dim = dim_arg(node, "dim", rank_of(node, x));
  builder.result(node, "CumSum",
                 {builder.name_as(node, x, type), builder.scalar(static_cast<double>(dim), at::kLong)});
}

/// The type in which LibTorch multiplies up: at::acc_type of a CPU.
at::ScalarType product_type(at::ScalarType type) {
  if (type == at::kHalf || type == at::kBFloat16) return at::kFloat;
  return at::isFloatingType(type) ? at::kDouble : at::kLong;
}

/// One product after the other, as LibTorch has it: the operators have sums alone before opset 26.
void cumprod(Builder& builder, const Node& node) {
  constexpr int64_t kMost = 1024;
  const Value& x = *value_arg(node, "self");
  const at::ScalarType type = type_of(*node.output()), wide = product_type(type);
  const int64_t rank = rank_of(node, x), dim = rank == 0 ? 0 : dim_arg(node, "dim", rank);
  const int64_t count = rank == 0 ? 1 : fixed_size(node, x, dim);
  if (count > kMost) refuse(node, "expected at most ", kMost, " elements in a row, got ", count);
  if (count <= 1) return builder.alias(node.output(), builder.name_as(node, x, type));
  Names rows = builder.calls(
      node, "Split", static_cast<size_t>(count),
      {builder.name_as(node, x, wide), builder.ints(std::vector<int64_t>(static_cast<size_t>(count), 1))},
      {{"axis", dim}});
  for (size_t i = 1; i < rows.size(); ++i) rows[i] = builder.call(node, "Mul", {rows[i - 1], rows[i]});
  const std::string all = builder.call(node, "Concat", std::move(rows), {{"axis", dim}});
  builder.alias(node.output(), wide == type ? all : builder.cast(node, all, type));
}

/// A row of 0 with a 1 at the place of each number.
void one_hot(Builder& builder, const Node& node) {
  const int64_t classes = int_arg(node, "num_classes");
  if (classes < 1) refuse(node, "expected a number of classes, got ", classes);
  builder.result(node, "OneHot",
                 {builder.in(node, "self"), builder.scalar(classes, at::kLong), builder.ints({0, 1})},
                 {{"axis", int64_t{-1}}});
}

/// Elements put at places of a copy, or added there.
void scatter(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const int64_t dim = dim_arg(node, "dim", rank_of(node, x));
  if (has_arg(node, "reduce")) refuse(node, "expected no other reduction than a sum");
  const Value& index = *value_arg(node, "index");
  const std::string& places = builder.name_of(&index);
  std::string source;
  if (const Value* given = has_arg(node, "src") ? optional_value(node, "src") : nullptr) {
    const auto& from = sizes_of(node, *given);
    if (from != sizes_of(node, index)) refuse(node, "expected a source of the sizes of its places");
    source = builder.name_of(given);
  } else {
    const std::string one = builder.scalar(scalar_arg(node, "value"), type_of(*node.output()));
    source = builder.call(node, "Expand", {one, builder.sizes(node, sizes_of(node, index))});
  }
  Attributes attributes = {{"axis", dim}};
  if (!node.is("aten::scatter_add"))
    return builder.result(node, "ScatterElements", {builder.name_of(&x), places, source}, attributes);
  attributes.push_back({"reduction", std::string("add")});
  // ONNX Runtime adds no float16 on a CPU.
  const at::ScalarType type = type_of(*node.output());
  if (type != at::kHalf)
    return builder.result(node, "ScatterElements", {builder.name_of(&x), places, source}, attributes);
  const Names wide = {builder.cast(node, builder.name_of(&x), at::kFloat), places,
                      builder.cast(node, source, at::kFloat)};
  builder.alias(node.output(),
                builder.cast(node, builder.call(node, "ScatterElements", wide, attributes), type));
}

}  // namespace

ConverterTable ordered_converters() {
  static constexpr Converter kTable[] = {{"aten::sort", sort},       {"aten::argsort", sort},
                                         {"aten::topk", topk},       {"aten::cumsum", cumsum},
                                         {"aten::cumprod", cumprod}, {"aten::one_hot", one_hot},
                                         {"aten::scatter", scatter}, {"aten::scatter_add", scatter}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
