#include "ulp/lower/written_attention.h"

#include <torch/types.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/attention.h"
#include "ulp/lower/match.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

/// At or below this a score has no weight in f32, and adding it to one gives the same as replacing it.
constexpr double kHidden = -1e8;

/// What was done to q k^T before the softmax.
struct Scores {
  Value *query = nullptr, *key = nullptr;
  double scale = 1;
  bool causal = false;
  int64_t mask_size = -1;            ///< queries and keys of a causal mask, or keys of the other
  Value* key_mask = nullptr;         ///< [N, 1, 1, keys]: added, or true where a key is hidden
  std::optional<double> key_fill{};  ///< what a hidden key gets, where key_mask is of truth
};

/// A number: a literal, or a constant of one element.
std::optional<double> number_of(const Graph& graph, const Argument& argument) {
  if (const std::optional<double> literal = graph::number(argument)) return literal;
  if (!argument.is_value()) return std::nullopt;
  const at::Tensor held = graph.attribute_tensor(argument.value);
  if (!held.defined() || held.numel() != 1) return std::nullopt;
  return held.item().toDouble();
}

/// A constant mask as a matrix [queries, keys].
at::Tensor matrix_of(const Graph& graph, const Argument& mask) {
  if (!mask.is_value()) return {};
  at::Tensor held = graph.attribute_tensor(mask.value);
  if (!held.defined() || held.dim() < 2) return {};
  for (; held.dim() > 2; held = held[0]) {
    if (held.size(0) != 1) return {};
  }
  return held.detach();
}

/// True where row i has truth at j > i and nowhere else.
bool hides_later(const at::Tensor& hidden) {
  return hidden.defined() && hidden.size(0) == hidden.size(1) &&
         hidden.equal(torch::ones(hidden.sizes(), torch::kBool).triu(1));
}

/// The same of a mask that is added: numbers that hide where there is truth, 0 elsewhere.
bool added_hides_later(const at::Tensor& mask) {
  const at::Tensor hidden = mask <= kHidden;
  return hides_later(hidden) && (hidden | (mask == 0)).all().item<bool>();
}

/// A mask [N, 1, 1, keys] that the network computes.
bool masks_keys(const Graph& graph, const Argument& mask) {
  if (!mask.is_value() || !mask.value->meta || graph.attribute_tensor(mask.value).defined()) return false;
  const auto& sizes = mask.value->meta->sizes;
  return sizes.size() == 4 && sizes[0] == graph::SizeExpr{1, 1, 0} && sizes[1].offset == 1 &&
         sizes[2].offset == 1 && sizes[1].constant() && sizes[2].constant();
}

bool is_product(const Node& node) {
  return node.is("aten::bmm") || node.is("aten::matmul");
}

/// The value before the last two dimensions were swapped, or null.
Value* swapped(const Argument& argument) {
  if (!argument.is_value() || graph::rank(argument) != 4) return nullptr;
  const Node& node = *argument.value->producer;
  if (node.is("aten::transpose")) {
    const std::optional<int64_t> a = graph::integer(node.args[1]), b = graph::integer(node.args[2]);
    if (!a || !b) return nullptr;
    const int64_t x = (*a + 4) % 4, y = (*b + 4) % 4;
    return x != y && x >= 2 && y >= 2 ? node.args[0].value : nullptr;
  }
  if (!node.is("aten::permute")) return nullptr;
  const auto dims = graph::integers(node.args[1]);
  const bool swaps = dims == std::vector<int64_t>{0, 1, 3, 2} || dims == std::vector<int64_t>{0, 1, -1, -2};
  return swaps ? node.args[0].value : nullptr;
}

class Matcher {
 public:
  explicit Matcher(const Graph& graph) : graph_(graph) {}

  /// Follows the weights of `product` back to q and k.
  std::optional<Scores> match(const Node& product) {
    if (!is_product(product) || graph::rank(product.args[0]) != 4) return std::nullopt;
    const Node* softmax = through_identities(product.args[0], product);
    if (softmax == nullptr || !softmax->is("aten::softmax") || !softmax->arg("dtype").is_none())
      return std::nullopt;
    const std::optional<int64_t> dim = graph::integer(softmax->arg("dim"));
    if (dim != -1 && dim != 3) return std::nullopt;
    const Node* node = through_identities(softmax->args[0], *softmax);
    while (node != nullptr && !is_product(*node)) node = peel(*node);
    if (node == nullptr || graph::rank(node->output()) != 4) return std::nullopt;
    scores_.query = node->args[0].value;
    scores_.key = swapped(node->args[1]);
    return scores_.query != nullptr && scores_.key != nullptr && mask_fits() ? std::optional(scores_)
                                                                             : std::nullopt;
  }

 private:
  /// Who makes what `reader` alone reads, behind dropout and the like.
  const Node* through_identities(const Argument& argument, const Node& reader) const {
    const Node* last = &reader;
    const Argument* at = &argument;
    while (at->is_value() && graph::other_users(graph_, at->value, *last).empty()) {
      const Node* node = at->value->producer;
      if (node->kind() != Node::Kind::call) return nullptr;
      if (!is_identity(*node)) return node;
      last = node;
      at = &node->args[0];
    }
    return nullptr;
  }

  /// The node behind one that scales or masks; null where it does neither.
  const Node* peel(const Node& node) {
    size_t next = 0;
    const bool known = scales(node) || fills(node, next) || chooses(node, next) || adds(node);
    return known ? through_identities(node.args[next], node) : nullptr;
  }

  /// No mask is known yet, and none of the scales so far, which come after it, would scale it.
  bool takes_mask() const { return !scores_.causal && scores_.key_mask == nullptr && scores_.scale == 1; }

  /// A mask of another size would be one of other scores: it broadcasts them.
  bool mask_fits() const {
    const auto &query = scores_.query->meta, &key = scores_.key->meta;
    if (!query || !key || query->sizes.size() != 4 || key->sizes.size() != 4) return false;
    const int64_t queries = query->sizes[2].offset, keys = key->sizes[2].offset;
    if (scores_.causal) return scores_.mask_size == queries && scores_.mask_size == keys;
    return scores_.key_mask == nullptr || scores_.mask_size == keys;
  }

  bool take_causal(const at::Tensor& mask, bool hides) {
    scores_.causal = hides;
    scores_.mask_size = mask.size(0);
    return hides;
  }

  bool take_key_mask(Value* mask, std::optional<double> fill) {
    scores_.key_mask = mask;
    scores_.key_fill = fill;
    scores_.mask_size = mask->meta->sizes[3].offset;
    return true;
  }

  bool scales(const Node& node) {
    const bool divides = node.is("aten::div") && node.args.size() == 2;
    if (!divides && !node.is("aten::mul")) return false;
    const std::optional<double> number = number_of(graph_, node.args[1]);
    if (!number || (divides && *number == 0)) return false;
    scores_.scale *= divides ? 1 / *number : *number;
    return true;
  }

  /// masked_fill(scores, mask, a large negative number)
  bool fills(const Node& node, size_t& next) {
    if (!node.is("aten::masked_fill") || !takes_mask()) return false;
    next = 0;
    const std::optional<double> fill = number_of(graph_, node.args[2]);
    if (!fill || !(*fill <= kHidden)) return false;
    const at::Tensor mask = matrix_of(graph_, node.args[1]);
    if (mask.defined()) return mask.scalar_type() == at::kBool && take_causal(mask, hides_later(mask));
    // Where all keys are hidden, an infinite fill gives no number and a finite one the mean.
    if (!std::isfinite(*fill) || !masks_keys(graph_, node.args[1])) return false;
    return take_key_mask(node.args[1].value, fill);
  }

  /// where(mask, scores, a large negative number)
  bool chooses(const Node& node, size_t& next) {
    if (!node.is("aten::where") || node.args.size() != 3 || !takes_mask()) return false;
    next = 1;
    const std::optional<double> fill = number_of(graph_, node.args[2]);
    const at::Tensor mask = matrix_of(graph_, node.args[0]);
    if (!fill || !(*fill <= kHidden) || !mask.defined() || mask.scalar_type() != at::kBool) return false;
    return take_causal(mask, hides_later(mask.logical_not()));
  }

  /// scores + mask, the mask being 0 or a large negative number
  bool adds(const Node& node) {
    if (node.target() != "aten::add.Tensor" || graph::number(node.args[2]) != 1.0 || !takes_mask())
      return false;
    const at::Tensor mask = matrix_of(graph_, node.args[1]);
    if (mask.defined()) {
      return at::isFloatingType(mask.scalar_type()) && take_causal(mask, added_hides_later(mask));
    }
    if (!masks_keys(graph_, node.args[1]) || !at::isFloatingType(node.args[1].value->meta->dtype))
      return false;
    return take_key_mask(node.args[1].value, std::nullopt);
  }

  const Graph& graph_;
  Scores scores_;
};

/// A call of this op before `node`, of the same module.
Value* call_before(Graph& graph, const char* target, std::vector<Argument> args, Node& node) {
  Node* made = graph.call(target, std::move(args), &node);
  made->scope = node.scope;
  return made->output();
}

Argument none() {
  return c10::IValue();
}

/// The mask that is added: numbers as they are, or `fill` where there is truth and 0 elsewhere.
Argument added_mask(Graph& graph, const Scores& scores, Node& node) {
  if (scores.key_mask == nullptr) return none();
  if (!scores.key_fill) return scores.key_mask;
  const c10::IValue no = false;
  Value* numbers =
      call_before(graph, "aten::to.dtype", {scores.key_mask, c10::IValue(at::kFloat), no, no, none()}, node);
  return call_before(graph, "aten::masked_fill.Scalar",
                     {numbers, scores.key_mask, c10::IValue(*scores.key_fill)}, node);
}

void fuse(Graph& graph, Node& product, const Scores& scores) {
  const Argument mask = added_mask(graph, scores, product);
  graph.retarget(&product, kAttention,
                 {scores.query, scores.key, product.args[1], mask, c10::IValue(0.0),
                  c10::IValue(scores.causal), c10::IValue(scores.scale)});
}

/// A constant mask of an attention node that hides what comes later becomes is_causal.
void name_causal_mask(Graph& graph, Node& attention) {
  const at::Tensor mask = matrix_of(graph, attention.arg("attn_mask"));
  if (!mask.defined()) return;
  const bool truth = mask.scalar_type() == at::kBool;
  if (!(truth ? hides_later(mask.logical_not()) : added_hides_later(mask))) return;
  attention.arg("attn_mask") = none();
  attention.arg("is_causal") = c10::IValue(true);
}

int64_t size_at(const Value* value, int64_t from_end) {
  return value->meta->sizes[value->meta->sizes.size() - static_cast<size_t>(from_end)].offset;
}

Argument constant(Graph& graph, const std::string& wish, const at::Tensor& tensor) {
  const std::string name = graph.unique_name(wish);
  graph.set_attribute(name, {graph::Attribute::Kind::constant, tensor});
  return graph.attribute(name);
}

/// True where a score of the node is hidden; none where all are seen or numbers are added.
Argument hidden_scores(Graph& graph, Node& node) {
  const Argument mask = node.arg("attn_mask");
  if (mask.is_value() && mask.value->meta && mask.value->meta->dtype == at::kBool) {
    const at::Tensor held = graph.attribute_tensor(mask.value);
    if (held.defined()) return constant(graph, node.name() + ".hidden", held.logical_not());
    return call_before(graph, "aten::logical_not", {mask}, node);
  }
  if (!node.arg("is_causal").literal.toBool()) return none();
  const int64_t queries = size_at(node.arg("query").value, 2), keys = size_at(node.arg("key").value, 2);
  return constant(graph, node.name() + ".later", torch::ones({queries, keys}, torch::kBool).triu(1));
}

/// softmax(scale q k^T + mask) v. False where that would not be what the node does.
bool write_out(Graph& graph, Node& node) {
  const Value *query = node.arg("query").value, *key = node.arg("key").value;
  const bool grouped = has_arg(node, "enable_gqa") && bool_arg(node, "enable_gqa");
  if (!query->meta || !key->meta || query->meta->sizes.size() < 3 || grouped) return false;
  if (node.arg("dropout_p").kind != Argument::Kind::literal || graph::number(node.arg("dropout_p")) != 0.0)
    return false;
  const double scale =
      graph::number(node.arg("scale")).value_or(1 / std::sqrt(static_cast<double>(size_at(query, 1))));
  const Argument last = c10::IValue(int64_t{-1}), before = c10::IValue(int64_t{-2});
  Value* scaled = call_before(graph, "aten::mul.Scalar", {node.arg("query"), c10::IValue(scale)}, node);
  Value* turned = call_before(graph, "aten::transpose.int", {node.arg("key"), before, last}, node);
  Value* scores = call_before(graph, "aten::matmul", {scaled, turned}, node);
  const Argument mask = node.arg("attn_mask"), hidden = hidden_scores(graph, node);
  if (hidden.is_value()) {
    scores = call_before(graph, "aten::masked_fill.Scalar", {scores, hidden, c10::IValue(-INFINITY)}, node);
  } else if (mask.is_value()) {
    scores = call_before(graph, "aten::add.Tensor", {scores, mask, c10::IValue(int64_t{1})}, node);
  }
  Value* weights = call_before(graph, "aten::softmax.int", {scores, last, none()}, node);
  if (hidden.is_value()) {  // a row that is all hidden gives zeros, as LibTorch has it
    weights = call_before(graph, "aten::masked_fill.Scalar", {weights, hidden, c10::IValue(0.0)}, node);
  }
  graph.retarget(&node, "aten::matmul", {weights, node.arg("value")});
  return true;
}

/// The calls of a graph that is about to change.
std::vector<Node*> calls(const Graph& graph) {
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::call) nodes.push_back(node.get());
  }
  return nodes;
}

}  // namespace

graph::PassReport fuse_written_attention(Graph& graph) {
  graph::PassReport report{.pass = "fuse_written_attention", .changes = {}, .near_misses = {}};
  for (Node* node : calls(graph)) {
    if (const std::optional<Scores> scores = Matcher(graph).match(*node)) {
      fuse(graph, *node, *scores);
      report.changes.push_back(node->name() +
                               ": softmax and two products -> aten::scaled_dot_product_attention");
    }
    if (node->is(kAttention)) name_causal_mask(graph, *node);
  }
  return report;
}

graph::PassReport write_out_attention(Graph& graph) {
  graph::PassReport report{.pass = "write_out_attention", .changes = {}, .near_misses = {}};
  for (Node* node : calls(graph)) {
    if (node->is(kAttention) && !has_attention_step(*node) && write_out(graph, *node)) {
      report.changes.push_back(node->name() + ": aten::scaled_dot_product_attention -> products and softmax");
    }
  }
  return report;
}

}  // namespace ulp::lowering
