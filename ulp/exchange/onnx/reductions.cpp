// Sums, means and extremes over dimensions.
#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

/// The form of a reduction: since opset 18 its dimensions are an input, those of a sum since opset 13.
CallArguments reduction_form(Builder& builder, const std::string& op, const std::string& x,
                             const std::vector<int64_t>& dims, bool keep) {
  constexpr int64_t kAxesAsInput = 18;
  CallArguments form{{x}, {{"keepdims", int64_t{keep}}}};
  if (op == "ReduceSum" || builder.opset() >= kAxesAsInput) {
    form.inputs.push_back(builder.ints(dims));
  } else {
    form.attributes.push_back({"axes", dims});
  }
  return form;
}

void reduce(Builder& builder, const Node& node, const char* op) {
  const Value& x = *value_arg(node, "self");
  const at::ScalarType type = type_of(*node.output());
  const std::string& name = builder.name_of(&x);
  const std::string typed = type_of(x) == type ? name : builder.cast(node, name, type);
  const bool keep = has_arg(node, "keepdim") && bool_arg(node, "keepdim");
  CallArguments form = reduction_form(builder, op, typed, reduced_dims(node, x), keep);
  builder.result(node, op, std::move(form.inputs), std::move(form.attributes));
}

void sum(Builder& builder, const Node& node) {
  reduce(builder, node, "ReduceSum");
}
void mean(Builder& builder, const Node& node) {
  reduce(builder, node, "ReduceMean");
}
void amax(Builder& builder, const Node& node) {
  reduce(builder, node, "ReduceMax");
}
void amin(Builder& builder, const Node& node) {
  reduce(builder, node, "ReduceMin");
}

/// The values of an extreme whose places nobody reads.
void extreme(Builder& builder, const Node& node) {
  if (node.outputs().size() > 1 && !builder.graph().users(node.output(1)).empty())
    refuse(node, "expected nobody to read the indices");
  reduce(builder, node, node.is("aten::max") ? "ReduceMax" : "ReduceMin");
}

void argmax(Builder& builder, const Node& node) {
  if (node.arg("dim").is_none()) refuse(node, "expected a dimension");
  builder.result(node, node.is("aten::argmax") ? "ArgMax" : "ArgMin", {builder.in(node, "self")},
                 {{"axis", int_arg(node, "dim")}, {"keepdims", int64_t{bool_arg(node, "keepdim")}}});
}

}  // namespace

std::string reduced(Builder& builder, const Node& node, const std::string& op, const std::string& x,
                    const std::vector<int64_t>& dims, bool keep) {
  CallArguments form = reduction_form(builder, op, x, dims, keep);
  return builder.call(node, op, std::move(form.inputs), std::move(form.attributes));
}

ConverterTable reduce_converters() {
  static constexpr Converter kTable[] = {
      {"aten::sum", sum},     {"aten::mean", mean},   {"aten::amax", amax},     {"aten::amin", amin},
      {"aten::max", extreme}, {"aten::min", extreme}, {"aten::argmax", argmax}, {"aten::argmin", argmax}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
