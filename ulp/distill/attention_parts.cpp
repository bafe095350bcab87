#include "ulp/distill/attention_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::distill {

namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

bool is_set(const Node& attention, const char* flag) {
  const Argument& argument = attention.arg(flag);
  return argument.literal.isBool() && argument.literal.toBool();
}

/// The scores of a fused attention: queries keys^T times its scale, its mask of numbers added, hidden ones at
/// -inf where the mask is of truth values or causal.
Value* add_scores(Graph& graph, Node* attention) {
  if (is_set(*attention, "enable_gqa"))
    fail(kFindPlaceWhere, "expected as many keys as queries, got groups of queries in '", attention->name(),
         "'");
  Value* queries = attention->arg("query").value;
  const auto call = [&](const char* target, std::vector<Argument> args) {
    Node* node = graph.call(target, std::move(args), attention, attention->name() + "_scores");
    node->scope = attention->scope;
    return node->output();
  };
  Value* keys = call("aten::transpose.int",
                     {attention->arg("key").value, Argument(int64_t{-2}), Argument(int64_t{-1})});
  Value* scores = call("aten::matmul", {queries, keys});
  const Argument& given = attention->arg("scale");
  double scale = 0;
  if (!given.is_none()) {
    scale = given.literal.toDouble();
  } else {
    if (!queries->meta || queries->meta->sizes.empty() || !queries->meta->sizes.back().constant())
      fail(kFindPlaceWhere, "expected an attention of known depth, got '", attention->name(), "'");
    scale = 1 / std::sqrt(static_cast<double>(queries->meta->sizes.back().at(int64_t{1})));
  }
  scores = call("aten::mul.Scalar", {scores, Argument(scale)});
  const auto hide = [&](Value* seen) {
    Value* hidden = call("aten::logical_not", {seen});
    return call("aten::masked_fill.Scalar",
                {scores, hidden, Argument(-std::numeric_limits<double>::infinity())});
  };
  if (is_set(*attention, "is_causal")) {
    Value* all = call("aten::ones_like", {scores, c10::IValue(at::kBool)});
    return hide(call("aten::tril", {all}));
  }
  const Argument& mask = attention->arg("attn_mask");
  if (mask.is_none()) return scores;
  if (mask.value->meta && mask.value->meta->dtype == at::kBool) return hide(mask.value);
  return call("aten::add.Tensor", {scores, mask.value});
}

bool is_product(const Node& node) {
  return graph::is_any(node, {"aten::matmul", "aten::bmm", "aten::baddbmm", "aten::einsum"});
}

/// What may stand between the product and the softmax: scales, masks, other types and forms.
bool passes_scores(const Node& node) {
  return graph::is_any(node, {"aten::div", "aten::div_", "aten::mul", "aten::mul_", "aten::add", "aten::add_",
                              "aten::sub", "aten::sub_", "aten::masked_fill", "aten::masked_fill_",
                              "aten::where", "aten::clamp", "aten::clamp_min", "aten::maximum", "aten::view",
                              "aten::reshape", "aten::contiguous", "aten::to", "aten::type_as"});
}

/// Adds the products that a value is made of by such calls, whichever argument they come by.
void collect_products(const Value* value, std::vector<Node*>& seen, std::vector<Node*>& products) {
  Node* node = value->producer;
  if (std::ranges::find(seen, node) != seen.end()) return;
  seen.push_back(node);
  if (is_product(*node)) {
    products.push_back(node);
  } else if (passes_scores(*node)) {
    for (const Value* read : node->reads()) collect_products(read, seen, products);
  }
}

/// The one product that scores come from; null where there is none, or several that a bias is made of.
Node* product_behind(const Value* scores) {
  std::vector<Node*> seen, products;
  collect_products(scores, seen, products);
  return products.size() == 1 ? products[0] : nullptr;
}

/// The product that reads the softmax, through dropout.
Node* product_before(const Graph& graph, Value* weights) {
  for (;;) {
    const std::vector<Node*> users = graph.users(weights);
    Node* next = nullptr;
    for (Node* user : users) {
      if (is_product(*user)) return user;
      if (graph::is_any(*user, {"aten::dropout", "aten::dropout_", "aten::to", "aten::view"})) next = user;
    }
    if (next == nullptr) return nullptr;
    weights = next->output();
  }
}

/// The value of which this one is the transpose in the last two dimensions; null where it is none.
Value* untransposed(const Value* value) {
  const Node& node = *value->producer;
  if (!node.is("aten::transpose")) return nullptr;
  const int64_t rank = graph::rank(node.args[0]);
  const auto a = graph::integer(node.args[1]), b = graph::integer(node.args[2]);
  if (rank < 2 || !a || !b) return nullptr;
  const int64_t first = (*a + rank) % rank, second = (*b + rank) % rank;
  return first != second && std::min(first, second) == rank - 2 ? node.args[0].value : nullptr;
}

/// The keys as (N, heads, T, depth): what is transposed for the product.
Value* transposed(Graph& graph, Value* keys, Node* product) {
  if (Value* before = untransposed(keys)) return before;
  Node* node =
      graph.call("aten::transpose.int", {keys, Argument(int64_t{-2}), Argument(int64_t{-1})}, product);
  node->scope = product->scope;
  return node->output();
}

Value* of_written_out(Graph& graph, Node* softmax, AttentionRole role, const std::string& place) {
  Value* scores = softmax->args.at(0).value;
  if (role == AttentionRole::scores) return scores;
  if (role == AttentionRole::values) {
    Node* product = product_before(graph, softmax->output());
    if (product != nullptr && !product->is("aten::einsum")) return product->args.at(1).value;
  } else {
    Node* product = product_behind(scores);
    if (product != nullptr && graph::is_any(*product, {"aten::matmul", "aten::bmm"})) {
      if (role == AttentionRole::queries) return product->args.at(0).value;
      return transposed(graph, product->args.at(1).value, product);
    }
  }
  fail(kFindPlaceWhere, "expected an attention whose ", enum_name(role), " can be told, got '", place,
       "'; name the value itself");
}

}  // namespace

Value* find_attention(Graph& graph, const std::vector<Node*>& calls, AttentionRole role,
                      const std::string& place) {
  std::vector<Node*> fused, softmaxes;
  for (Node* call : calls) {
    if (call->is("aten::scaled_dot_product_attention")) fused.push_back(call);
    if (graph::is_any(*call, {"aten::softmax", "aten::_softmax"})) softmaxes.push_back(call);
  }
  if (fused.size() + softmaxes.size() != 1) {
    fail(kFindPlaceWhere, "expected one attention in '", place, "', got ", fused.size() + softmaxes.size());
  }
  if (fused.empty()) return of_written_out(graph, softmaxes[0], role, place);
  switch (role) {
    case AttentionRole::queries:
      return fused[0]->arg("query").value;
    case AttentionRole::keys:
      return fused[0]->arg("key").value;
    case AttentionRole::values:
      return fused[0]->arg("value").value;
    case AttentionRole::scores:
      break;
  }
  return add_scores(graph, fused[0]);
}

}  // namespace ulp::distill
