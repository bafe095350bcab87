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

/// The values of an extreme whose places nobody reads.
void extreme(Builder& builder, const Node& node) {
  if (node.outputs().size() > 1 && !builder.graph().users(node.output(1)).empty())
    refuse(node, "expected nobody to read the indices");
  reduce(builder, node, node.is("aten::max") ? "reduce_max" : "reduce_min");
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
      {"aten::sum", sum},     {"aten::mean", mean},   {"aten::amax", amax},     {"aten::amin", amin},
      {"aten::max", extreme}, {"aten::min", extreme}, {"aten::argmax", argmax}, {"aten::argmin", argmax}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
