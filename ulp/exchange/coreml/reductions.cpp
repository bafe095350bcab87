// Sums, means and extremes over dimensions.
#include "ulp/exchange/coreml/converters.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;
using graph::Value;

void reduce(Builder& builder, const Node& node, const char* op) {
  const Value& x = *value_arg(node, "self");
  const at::ScalarType type = type_of(*node.output());
  const std::string& name = builder.name_of(&x);
  const std::string typed = type_of(x) == type ? name : builder.cast(node, name, type, shape_of(node, x));
  const bool keep = has_arg(node, "keepdim") && bool_arg(node, "keepdim");
  const std::vector<int64_t> dims = reduced_dims(node, x);
  if (!keep && std::ssize(dims) == rank_of(node, x)) refuse(node, "expected a dimension to be left");
  builder.result(node, op, reduction(builder, typed, dims, keep));
}

void sum(Builder& builder, const Node& node) {
  reduce(builder, node, "reduce_sum");
}
void mean(Builder& builder, const Node& node) {
  reduce(builder, node, "reduce_mean");
}
void amax(Builder& builder, const Node& node) {
  reduce(builder, node, "reduce_max");
}
void amin(Builder& builder, const Node& node) {
  reduce(builder, node, "reduce_min");
}

void prod(Builder& builder, const Node& node) {
  reduce(builder, node, "reduce_prod");
}

/// Extremes of zeros and ones.
void any_or_all(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const std::vector<int64_t> dims = reduced_dims(node, x), shape = shape_of(node, x);
  const bool keep = has_arg(node, "keepdim") && bool_arg(node, "keepdim");
  if (std::ssize(dims) == std::ssize(shape) && !keep) refuse(node, "expected a dimension to be left");
  std::string truth = builder.name_of(&x);
  if (type_of(x) != at::kBool)
    truth = builder.call(node, "not_equal", {{"x", truth}, {"y", builder.number(0, type_of(x))}},
                         {at::kBool, shape});
  const std::string numbers = builder.cast(node, truth, at::kInt, shape);
  const std::string found = builder.call(node, node.is("aten::any") ? "reduce_max" : "reduce_min",
                                         reduction(builder, numbers, dims, keep), {at::kInt, shape_of(node)});
  builder.alias(node.output(), builder.cast(node, found, at::kBool, shape_of(node)));
}

/// An extreme, and where its first one is.
void extreme(Builder& builder, const Node& node) {
  const bool largest = node.is("aten::max");
  reduce(builder, node, largest ? "reduce_max" : "reduce_min");
  if (node.outputs().size() < 2 || builder.graph().users(node.output(1)).empty()) return;
  builder.result(node, largest ? "reduce_argmax" : "reduce_argmin",
                 {{"x", builder.in(node, "self")},
                  {"axis", builder.integer(int_arg(node, "dim"))},
                  {"keep_dims", builder.flag(bool_arg(node, "keepdim"))}},
                 1);
}

void argmax(Builder& builder, const Node& node) {
  if (node.arg("dim").is_none()) refuse(node, "expected a dimension");
  builder.result(node, node.is("aten::argmax") ? "reduce_argmax" : "reduce_argmin",
                 {{"x", builder.in(node, "self")},
                  {"axis", builder.integer(int_arg(node, "dim"))},
                  {"keep_dims", builder.flag(bool_arg(node, "keepdim"))}});
}

}  // namespace

Inputs reduction(Builder& builder, const std::string& x, const std::vector<int64_t>& dims, bool keep) {
  return {{"x", x}, {"axes", builder.ints(dims)}, {"keep_dims", builder.flag(keep)}};
}

ConverterTable reduce_converters() {
  static constexpr Converter kTable[] = {
      {"aten::sum", sum},     {"aten::mean", mean},      {"aten::amax", amax},     {"aten::amin", amin},
      {"aten::max", extreme}, {"aten::min", extreme},    {"aten::argmax", argmax}, {"aten::argmin", argmax},
      {"aten::prod", prod},   {"aten::any", any_or_all}, {"aten::all", any_or_all}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
