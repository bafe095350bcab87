// Attention.
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <utility>

#include "ulp/exchange/onnx/converters.h"
#include "ulp/graph/passes/fixed_tensor.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::SizeExpr;
using graph::Value;

/// q k^T scale.
std::string scores_of(Builder& builder, const Node& node) {
  const Value &q = *value_arg(node, "query"), &k = *value_arg(node, "key");
  std::vector<int64_t> order(static_cast<size_t>(rank_of(node, k)));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  const std::optional<double> given = optional_number(node, "scale");
  const double scale = given ? *given : 1 / std::sqrt(static_cast<double>(fixed_size(node, q, -1)));
  const std::string product = builder.call(
      node, "MatMul", {builder.name_of(&q), transposed(builder, node, builder.name_of(&k), order)});
  return builder.call(node, "Mul", {product, builder.scalar(scale, type_of(q))});
}

/// Where a query may look in causal attention: a lower triangle of its length times that of the keys.
std::string causal_mask(Builder& builder, const Node& node) {
  const std::vector<SizeExpr>& q = sizes_of(node, *value_arg(node, "query"));
  const std::vector<SizeExpr>& k = sizes_of(node, *value_arg(node, "key"));
  const std::string square = builder.sizes(node, {q[q.size() - 2], k[k.size() - 2]});
  const std::string ones = builder.call(node, "ConstantOfShape", {square}, {{"value", torch::ones({1})}});
  return builder.cast(node, builder.call(node, "Trilu", {ones}, {{"upper", int64_t{0}}}), at::kBool);
}

/// The weights of attention. What is hidden gets none, also where all is hidden, as in LibTorch. `mask`: the
/// node's, or null.
std::string weights_of(Builder& builder, const Node& node, const std::string& scores,
                       const std::string& visible, const Value* mask) {
  const at::ScalarType type = type_of(*node.output());
  if (visible.empty()) {
    const std::string soft = builder.call(node, "Softmax", {scores}, {{"axis", int64_t{-1}}});
    if (mask == nullptr || !graph::may_hide_all_keys(builder.graph(), *mask)) return soft;
    const at::ScalarType own = type_of(*mask);
    const std::string hidden =
        builder.call(node, "Equal", {builder.name_of(mask), builder.scalar(-INFINITY, own)});
    return builder.call(node, "Where", {hidden, builder.scalar(0, type), soft});
  }
  const double lowest = type == at::kHalf ? -65504.0 : std::numeric_limits<float>::lowest();
  const std::string shown = builder.call(node, "Where", {visible, scores, builder.scalar(lowest, type)});
  const std::string soft = builder.call(node, "Softmax", {shown}, {{"axis", int64_t{-1}}});
  return builder.call(node, "Where", {visible, soft, builder.scalar(0, type)});
}

void attention(Builder& builder, const Node& node) {
  if (has_arg(node, "enable_gqa") && bool_arg(node, "enable_gqa"))
    refuse(node, "expected as many heads of keys as of queries");
  if (number_arg(node, "dropout_p") != 0) refuse(node, "expected no dropout in eval mode");
  std::string scores = scores_of(builder, node), visible;
  if (bool_arg(node, "is_causal")) visible = causal_mask(builder, node);
  const Value* mask = optional_value(node, "attn_mask");
  if (mask != nullptr) {
    if (type_of(*mask) != at::kBool) {
      scores = builder.call(node, "Add", {scores, builder.name_of(mask)});
    } else {
      visible = builder.name_of(mask);
    }
  }
  const std::string weights = weights_of(builder, node, scores, visible, mask);
  builder.result(node, "MatMul", {weights, builder.in(node, "value")});
}

}  // namespace

ConverterTable text_converters() {
  static constexpr Converter kTable[] = {{"aten::scaled_dot_product_attention", attention}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
