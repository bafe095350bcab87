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
                                         {"aten::scatter", scatter}, {"aten::scatter_add", scatter}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
