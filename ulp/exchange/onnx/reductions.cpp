// Sums, means, extremes, products, norms and variances over dimensions.
#include <cmath>
#include <limits>

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

bool keeps_dim(const Node& node) {
  return has_arg(node, "keepdim") && bool_arg(node, "keepdim");
}

/// The node's result: `x`, which has the sizes of "self", reduced over the node's dimensions.
void reduce(Builder& builder, const Node& node, const char* op, const std::string& x) {
  const std::vector<int64_t> dims = reduced_dims(node, *value_arg(node, "self"));
  CallArguments form = reduction_form(builder, op, x, dims, keeps_dim(node));
  builder.result(node, op, std::move(form.inputs), std::move(form.attributes));
}

/// The same of "self" in the result's type.
void reduce(Builder& builder, const Node& node, const char* op) {
  reduce(builder, node, op, builder.name_as(node, *value_arg(node, "self"), type_of(*node.output())));
}

void sum(Builder& builder, const Node& node) {
  reduce(builder, node, "ReduceSum");
}
void mean(Builder& builder, const Node& node) {
  reduce(builder, node, "ReduceMean");
}
void product(Builder& builder, const Node& node) {
  reduce(builder, node, "ReduceProd");
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

/// A norm of any order but 1, 2 and infinity: (sum of |x|^p)^(1/p), and for p = 0 how many are other than 0.
/// Halves are computed in float, as in LibTorch: the powers leave their range early.
std::string norm_of_powers(Builder& builder, const Node& node, const Value& x, double order) {
  const at::ScalarType type = type_of(*node.output()), work = type == at::kHalf ? at::kFloat : type;
  const std::string name = builder.name_as(node, x, work);
  const std::string zero = builder.scalar(0, work);
  const std::string powers =
      order == 0
          ? builder.cast(node, builder.call(node, "Not", {builder.call(node, "Equal", {name, zero})}), work)
          : builder.call(node, "Pow", {builder.call(node, "Abs", {name}), builder.scalar(order, work)});
  const std::string sum = reduced(builder, node, "ReduceSum", powers, reduced_dims(node, x), keeps_dim(node));
  const std::string norm =
      order == 0 ? sum : builder.call(node, "Pow", {sum, builder.scalar(1 / order, work)});
  return work == type ? norm : builder.cast(node, norm, type);
}

void vector_norm(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const double order = number_arg(node, "ord");
  const bool any = order != 1 && order != 2 && !std::isinf(order);
  if (any) return builder.alias(node.output(), norm_of_powers(builder, node, x, order));
  const std::string name = builder.name_as(node, x, type_of(*node.output()));
  if (order == 2) return reduce(builder, node, "ReduceL2", name);
  if (order == 1) return reduce(builder, node, "ReduceL1", name);
  reduce(builder, node, order > 0 ? "ReduceMax" : "ReduceMin", builder.call(node, "Abs", {name}));
}

/// var and std: the sum of squared differences from the mean, over the count less the correction.
void variance(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const at::ScalarType type = type_of(*node.output());
  const std::vector<int64_t> dims = reduced_dims(node, x);
  double count = 1;
  for (const int64_t dim : dims) count *= static_cast<double>(fixed_size(node, x, dim));
  const bool says_correction = has_arg(node, "correction");
  const double less = says_correction ? optional_number(node, "correction").value_or(1)
                                      : (bool_arg(node, "unbiased") ? 1 : 0);
  const double kept = count - less;
  if (kept <= 0) refuse(node, "expected more elements than the correction");
  const std::string& name = builder.name_of(&x);
  const std::string mean = reduced(builder, node, "ReduceMean", name, dims, /*keep=*/true);
  const std::string left = builder.call(node, "Sub", {name, mean});
  const std::string sum =
      reduced(builder, node, "ReduceSum", builder.call(node, "Mul", {left, left}), dims, keeps_dim(node));
  const Names quotient = {sum, builder.scalar(kept, type)};
  if (node.is("aten::var")) return builder.result(node, "Div", quotient);
  builder.result(node, "Sqrt", {builder.call(node, "Div", quotient)});
}

/// log(sum(exp(x - m))) + m in the result's type, which is a float for integers, too. m is the largest element,
/// or 0 where that is infinite, as in LibTorch: exp overflows in no row, and a row with infinities gives its
/// infinity. (ONNX Runtime's ReduceLogSumExp sums exp(x) as it is.)
void log_sum_exp(Builder& builder, const Node& node) {
  const Value& value = *value_arg(node, "self");
  const at::ScalarType type = type_of(*node.output());
  const std::vector<int64_t> dims = reduced_dims(node, value);
  const std::string x = builder.name_as(node, value, type);
  const std::string largest = reduced(builder, node, "ReduceMax", x, dims, /*keep=*/true);
  const std::string infinity = builder.scalar(std::numeric_limits<double>::infinity(), type);
  const std::string infinite = builder.call(node, "Equal", {builder.call(node, "Abs", {largest}), infinity});
  const std::string shift = builder.call(node, "Where", {infinite, builder.scalar(0, type), largest});
  const std::string shares = builder.call(node, "Exp", {builder.call(node, "Sub", {x, shift})});
  const bool keep = keeps_dim(node);
  const std::string sum = reduced(builder, node, "ReduceSum", shares, dims, keep);
  const std::string back = keep ? shift : builder.call(node, "Squeeze", {shift, builder.ints(dims)});
  builder.result(node, "Add", {builder.call(node, "Log", {sum}), back});
}

/// Whether any, or all, are other than 0.
void truth(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const std::string bools = builder.name_as(node, x, at::kBool);
  const std::string found =
      reduced(builder, node, node.is("aten::any") ? "ReduceMax" : "ReduceMin",
              builder.cast(node, bools, at::kInt), reduced_dims(node, x), keeps_dim(node));
  // LibTorch gives a bool, but uint8 for uint8.
  builder.alias(node.output(), builder.cast(node, found, type_of(*node.output())));
}

}  // namespace

std::string reduced(Builder& builder, const Node& node, const std::string& op, const std::string& x,
                    const std::vector<int64_t>& dims, bool keep) {
  CallArguments form = reduction_form(builder, op, x, dims, keep);
  return builder.call(node, op, std::move(form.inputs), std::move(form.attributes));
}

ConverterTable reduce_converters() {
  static constexpr Converter kTable[] = {{"aten::sum", sum},
                                         {"aten::mean", mean},
                                         {"aten::amax", amax},
                                         {"aten::amin", amin},
                                         {"aten::max", extreme},
                                         {"aten::min", extreme},
                                         {"aten::argmax", argmax},
                                         {"aten::argmin", argmax},
                                         {"aten::prod", product},
                                         {"aten::linalg_vector_norm", vector_norm},
                                         {"aten::var", variance},
                                         {"aten::std", variance},
                                         {"aten::logsumexp", log_sum_exp},
                                         {"aten::any", truth},
                                         {"aten::all", truth}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
