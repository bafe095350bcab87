// Attention.
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "ulp/exchange/coreml/converters.h"
#include "ulp/graph/passes/fixed_tensor.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;
using graph::Value;

/// Scores and what becomes of them: [..., queries, keys].
class Scores {
 public:
  Scores(Builder& builder, const Node& node) : builder_(builder), node_(node) {
    const Value &q = *value_arg(node, "query"), &k = *value_arg(node, "key");
    type_ = {type_of(q), shape_of(node, q)};
    if (type_.shape.size() < 2) refuse(node, "expected matrices, got a vector");
    type_.shape.back() = fixed_size(node, k, -2);
    const std::optional<double> given = optional_number(node, "scale");
    const double scale = given ? *given : 1 / std::sqrt(static_cast<double>(fixed_size(node, q, -1)));
    name_ = step("matmul", {{"x", builder.name_of(&q)},
                            {"y", builder.name_of(&k)},
                            {"transpose_x", builder.flag(false)},
                            {"transpose_y", builder.flag(true)}});
    name_ = step("mul", {{"x", name_}, {"y", builder.number(scale, type_.dtype)}});
  }

  /// A query sees the keys up to its own place.
  void make_causal() {
    const int64_t queries = type_.shape[type_.shape.size() - 2], keys = type_.shape.back();
    const at::Tensor hidden = torch::full({queries, keys}, lowest(), torch::kFloat).triu(1);
    add(builder_.constant(hidden.to(type_.dtype), "causal_mask"));
  }

  void add(const std::string& mask) { name_ = step("add", {{"x", name_}, {"y", mask}}); }

  std::string softmax() { return step("softmax", {{"x", name_}, {"axis", builder_.integer(-1)}}); }

  /// What is hidden gets no weight, also where all is hidden, as in LibTorch.
  std::string softmax_of(const std::string& visible) {
    name_ = step("select", {{"cond", visible}, {"a", name_}, {"b", builder_.number(lowest(), type_.dtype)}});
    return step("select", {{"cond", visible}, {"a", softmax()}, {"b", builder_.number(0, type_.dtype)}});
  }

  /// The same where a mask of numbers, which was added, is -inf.
  std::string softmax_beside(const Value& mask) {
    const std::string hidden = builder_.call(
        node_, "equal",
        {{"x", builder_.name_of(&mask)}, {"y", builder_.number(-INFINITY, exchange::type_of(mask))}},
        {at::kBool, shape_of(node_, mask)});
    return step("select", {{"cond", hidden}, {"a", builder_.number(0, type_.dtype)}, {"b", softmax()}});
  }

 private:
  std::string step(const char* op, Inputs inputs) {
    return builder_.call(node_, op, std::move(inputs), type_);
  }
  double lowest() const { return type_.dtype == at::kHalf ? -65504.0 : std::numeric_limits<float>::lowest(); }

  Builder& builder_;
  const Node& node_;
  Type type_;
  std::string name_;
};

void attention(Builder& builder, const Node& node) {
  if (has_arg(node, "enable_gqa") && bool_arg(node, "enable_gqa"))
    refuse(node, "expected as many heads of keys as of queries");
  if (number_arg(node, "dropout_p") != 0) refuse(node, "expected no dropout in eval mode");
  Scores scores(builder, node);
  if (bool_arg(node, "is_causal")) scores.make_causal();
  const Value* mask = optional_value(node, "attn_mask");
  const bool chooses = mask != nullptr && type_of(*mask) == at::kBool;
  if (mask != nullptr && !chooses) scores.add(builder.name_of(mask));
  const bool hides = mask != nullptr && !chooses && graph::may_hide_all_keys(builder.graph(), *mask);
  const std::string weights = chooses ? scores.softmax_of(builder.name_of(mask))
                              : hides ? scores.softmax_beside(*mask)
                                      : scores.softmax();
  builder.result(node, "matmul",
                 {{"x", weights},
                  {"y", builder.in(node, "value")},
                  {"transpose_x", builder.flag(false)},
                  {"transpose_y", builder.flag(false)}});
}

}  // namespace

ConverterTable text_converters() {
  static constexpr Converter kTable[] = {{"aten::scaled_dot_product_attention", attention}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
