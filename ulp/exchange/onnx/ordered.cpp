// Norms over dimensions, variances, products, and what orders elements.
#include <cmath>
#include <limits>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

bool keeps_dim(const Node& node) {
  return has_arg(node, "keepdim") && bool_arg(node, "keepdim");
}

/// A reduction as the node's result.
void reduced_result(Builder& builder, const Node& node, const char* op, const std::string& x,
                    const std::vector<int64_t>& dims) {
  builder.alias(node.output(), reduced(builder, node, op, x, dims, keeps_dim(node)));
}

void vector_norm(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  if (type_of(x) != type_of(*node.output())) refuse(node, "expected a norm of the type of its input");
  const double order = number_arg(node, "ord");
  const std::string& name = builder.name_of(&x);
  const std::vector<int64_t> dims = reduced_dims(node, x);
  if (order == 2) return reduced_result(builder, node, "ReduceL2", name, dims);
  if (order == 1) return reduced_result(builder, node, "ReduceL1", name, dims);
  if (!std::isinf(order)) refuse(node, "expected a norm of order 1, 2 or infinity, got ", order);
  const std::string size = builder.call(node, "Abs", {name});
  reduced_result(builder, node, order > 0 ? "ReduceMax" : "ReduceMin", size, dims);
}

/// var and std: squares of what is left without the mean.
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
  const std::string variance = builder.call(node, "Div", {sum, builder.scalar(kept, type)});
  if (node.is("aten::var")) return builder.alias(node.output(), variance);
  builder.result(node, "Sqrt", {variance});
}

void log_sum_exp(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  if (!at::isFloatingType(type_of(x))) refuse(node, "expected floats");
  // ONNX Runtime sums exp(x) as it is; less the largest, none overflows.
  const std::vector<int64_t> dims = reduced_dims(node, x);
  const std::string& name = builder.name_of(&x);
  const std::string largest = reduced(builder, node, "ReduceMax", name, dims, /*keep=*/true);
  const std::string shares = builder.call(node, "Exp", {builder.call(node, "Sub", {name, largest})});
  const std::string sum = reduced(builder, node, "ReduceSum", shares, dims, keeps_dim(node));
  const std::string shift =
      keeps_dim(node) ? largest : reduced(builder, node, "ReduceMax", name, dims, /*keep=*/false);
  builder.result(node, "Add", {builder.call(node, "Log", {sum}), shift});
}

void product(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const at::ScalarType type = type_of(*node.output());
  const std::string& name = builder.name_of(&x);
  reduced_result(builder, node, "ReduceProd", type_of(x) == type ? name : builder.cast(node, name, type),
                 reduced_dims(node, x));
}

/// Whether any, or all, are other than 0.
void truth(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const std::string bools =
      type_of(x) == at::kBool ? builder.name_of(&x) : builder.cast(node, builder.name_of(&x), at::kBool);
  const std::string found =
      reduced(builder, node, node.is("aten::any") ? "ReduceMax" : "ReduceMin",
              builder.cast(node, bools, at::kInt), reduced_dims(node, x), keeps_dim(node));
  builder.alias(node.output(), builder.cast(node, found, at::kBool));
}

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

void cumsum(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const at::ScalarType type = type_of(*node.output());
  const std::string& name = builder.name_of(&x);
  const int64_t dim = dim_arg(node, "dim", rank_of(node, x));
  builder.result(node, "CumSum",
                 {type_of(x) == type ? name : builder.cast(node, name, type),
                  builder.scalar(static_cast<double>(dim), at::kLong)});
}

/// x by the root of the mean of its squares.
void rms_norm(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "input");
  const at::ScalarType type = type_of(*node.output());
  const std::vector<int64_t> shape = ints_arg(node, "normalized_shape");
  std::vector<int64_t> dims;
  for (int64_t d = -std::ssize(shape); d < 0; ++d) dims.push_back(d + rank_of(node, x));
  const std::string& name = builder.name_of(&x);
  const std::string mean =
      reduced(builder, node, "ReduceMean", builder.call(node, "Mul", {name, name}), dims, /*keep=*/true);
  const double eps = optional_number(node, "eps").value_or(std::numeric_limits<float>::epsilon());
  const std::string root =
      builder.call(node, "Sqrt", {builder.call(node, "Add", {mean, builder.scalar(eps, type)})});
  const Value* weight = optional_value(node, "weight");
  const Names quotient = {name, root};
  if (weight == nullptr) return builder.result(node, "Div", quotient);
  builder.result(node, "Mul", {builder.call(node, "Div", quotient), builder.name_of(weight)});
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
    const std::string one = builder.scalar(number_arg(node, "value"), type_of(*node.output()));
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
  static constexpr Converter kTable[] = {{"aten::linalg_vector_norm", vector_norm},
                                         {"aten::var", variance},
                                         {"aten::std", variance},
                                         {"aten::logsumexp", log_sum_exp},
                                         {"aten::prod", product},
                                         {"aten::any", truth},
                                         {"aten::all", truth},
                                         {"aten::sort", sort},
                                         {"aten::argsort", sort},
                                         {"aten::cumsum", cumsum},
                                         {"aten::rms_norm", rms_norm},
                                         {"aten::scatter", scatter},
                                         {"aten::scatter_add", scatter}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
