// What goes through a dimension in order, and writes to places of it.
#include <torch/types.h>

#include "ulp/exchange/coreml/converters.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;
using graph::Value;

/// The first `count` in order: values and their places.
void first_of(Builder& builder, const Node& node, int64_t dim, int64_t count, bool ascending) {
  builder.results(node, "topk",
                  {{"x", builder.in(node, "self")},
                   {"k", builder.integer(count)},
                   {"axis", builder.integer(dim)},
                   {"ascending", builder.flag(ascending)}});
}

void sort(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  if (type_of(x) == at::kBool) refuse(node, "expected numbers");
  const int64_t dim = dim_arg(node, "dim", rank_of(node, x));
  if (has_arg(node, "stable") && !node.arg("stable").is_none() && bool_arg(node, "stable"))
    refuse(node, "expected no stable order");
  first_of(builder, node, dim, fixed_size(node, x, dim), !bool_arg(node, "descending"));
}

void topk(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  first_of(builder, node, dim_arg(node, "dim", rank_of(node, x)), int_arg(node, "k"),
           !bool_arg(node, "largest"));
}

void argsort(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  if (has_arg(node, "stable") && bool_arg(node, "stable")) refuse(node, "expected no stable order");
  builder.result(node, "argsort",
                 {{"x", builder.name_of(&x)},
                  {"axis", builder.integer(dim_arg(node, "dim", rank_of(node, x)))},
                  {"ascending", builder.flag(!bool_arg(node, "descending"))}});
}

void cumsum(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const at::ScalarType type = type_of(*node.output());
  const std::string& name = builder.name_of(&x);
  const std::string typed = type_of(x) == type ? name : builder.cast(node, name, type, shape_of(node, x));
  builder.result(node, "cumsum",
                 {{"x", typed},
                  {"axis", builder.integer(dim_arg(node, "dim", rank_of(node, x)))},
                  {"exclusive", builder.flag(false)},
                  {"reverse", builder.flag(false)}});
}

/// Ids for the whole of the other dimensions, as MIL wants them.
void scatter_as(Builder& builder, const Node& node, const char* mode) {
  const Value &x = *value_arg(node, "self"), &ids = *value_arg(node, "index");
  std::vector<int64_t> shape = shape_of(node, x), places = shape_of(node, ids);
  const std::vector<int64_t> all = places;
  const auto dim = static_cast<size_t>(dim_arg(node, "dim", std::ssize(shape)));
  shape.at(dim) = places.at(dim) = 0;
  if (shape != places) refuse(node, "expected ids for all of the other dimensions");
  const bool has_source = has_arg(node, "src");
  if (has_source && shape_of(node, *value_arg(node, "src")) != all)
    refuse(node, "expected as many source elements as ids");
  const std::string source =
      has_source ? builder.in(node, "src")
                 : builder.constant(torch::full(all, number_arg(node, "value"), type_of(x)), "source");
  builder.result(node, "scatter_along_axis",
                 {{"data", builder.name_of(&x)},
                  {"indices", builder.name_of(&ids)},
                  {"updates", source},
                  {"axis", builder.integer(static_cast<int64_t>(dim))},
                  {"mode", builder.word(mode)}});
}

void scatter(Builder& builder, const Node& node) {
  if (has_arg(node, "reduce")) refuse(node, "expected no reduction");
  scatter_as(builder, node, "update");
}

void scatter_add(Builder& builder, const Node& node) {
  scatter_as(builder, node, "add");
}

}  // namespace

ConverterTable ordered_converters() {
  static constexpr Converter kTable[] = {{"aten::sort", sort},       {"aten::topk", topk},
                                         {"aten::argsort", argsort}, {"aten::cumsum", cumsum},
                                         {"aten::scatter", scatter}, {"aten::scatter_add", scatter_add}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
