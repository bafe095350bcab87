#include "ulp/lower/fuse_sdpa.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ulp/graph/passes/fixed_tensor.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/attention.h"
#include "ulp/lower/attention_mask.h"
#include "ulp/lower/fixed_masks.h"
#include "ulp/lower/match.h"
#include "ulp/lower/score_changes.h"
#include "ulp/lower/windowed_attention.h"
#include "ulp/lower/writer.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

/// What was done to q k^T before the softmax.
struct Scores {
  Argument query, key;
  bool key_is_swapped = true;  ///< `key` is the value before its last dimensions were swapped
  StepMasks masks;
};

bool is_product(const Node& node) {
  return node.is("aten::bmm") || node.is("aten::matmul");
}

/// The order of the dimensions that a transpose or a permute of the last two or more gives; empty for other
/// calls.
std::vector<int64_t> order_of(const Node& node) {
  const int64_t rank = graph::rank(node.args.empty() ? Argument() : node.args[0]);
  if (rank < 0) return {};
  if (node.is("aten::transpose")) {
    const std::optional<int64_t> a = graph::integer(node.args[1]), b = graph::integer(node.args[2]);
    if (!a || !b) return {};
    std::vector<int64_t> order(static_cast<size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[static_cast<size_t>((*a + rank) % rank)], order[static_cast<size_t>((*b + rank) % rank)]);
    return order;
  }
  if (!node.is("aten::permute")) return {};
  std::vector<int64_t> order = graph::integers(node.args[1]).value_or(std::vector<int64_t>());
  for (int64_t& dim : order) dim = (dim + rank) % rank;
  return order;
}

/// Follows weights of values back to q and k, and gathers what scales and masks the scores on the way, from
/// the last call to the first.
class Matcher {
 public:
  explicit Matcher(FixedMasks& masks) : masks_(masks), score_masks_(masks) {}

  /// The attention whose last product is `product`; nothing where it is none, or masked in a way that the
  /// step has not.
  std::optional<Scores> match(const Node& product) {
    rank_ = is_product(product) ? graph::rank(product.args[0]) : 0;
    if (rank_ != 3 && rank_ != 4) return std::nullopt;
    const Node* softmax = through_weights(product);
    if (softmax == nullptr || !softmax->is("aten::softmax") || !keeps_type(*softmax)) return std::nullopt;
    const std::optional<int64_t> dim = graph::integer(softmax->arg("dim"));
    if (dim != -1 && dim != rank_ - 1) return std::nullopt;
    const Node* node = through_identities(softmax->args[0], *softmax);
    while (node != nullptr && !is_product(*node)) node = peel(*node);
    if (node == nullptr || graph::rank(node->output()) != rank_ || !take_operands(*node)) return std::nullopt;
    std::ranges::reverse(changes_);
    const std::optional<StepMasks> found = step_masks_of(changes_, runtime::BlindQueries::nan);
    if (!found || (!found->causal && rank_ == 3)) return std::nullopt;
    const bool masks_keys = !found->keys.empty() || found->values != nullptr;
    const bool same = found->later == zeroed_ && found->window == zeroed_window_;
    if (zeroed_ >= 0 && (!same || masks_keys)) return std::nullopt;
    scores_.masks = *found;
    return mask_fits() ? std::optional(scores_) : std::nullopt;
  }

 private:
  /// Who makes what `reader` alone reads, behind dropout and the like.
  const Node* through_identities(const Argument& argument, const Node& reader) const {
    const Node* last = &reader;
    const Argument* at = &argument;
    while (at->is_value() && masks_.read_by_one(at->value, *last)) {
      const Node* node = at->value->producer;
      if (node->kind() != Node::Kind::call) return nullptr;
      if (!is_identity(*node)) return node;
      last = node;
      at = &node->args[0];
    }
    return nullptr;
  }

  /// The softmax behind weights that are set to 0 once more where they are 0 already.
  const Node* through_weights(const Node& product) {
    const Node* node = through_identities(product.args[0], product);
    while (node != nullptr && !node->is("aten::softmax")) {
      const std::optional<Triangle> mask =
          node->args.size() > 1 ? masks_.triangle(node->args[1]) : std::nullopt;
      const bool fills =
          node->is("aten::masked_fill") && mask && mask->hides && masks_.number(node->args[2]) == 0.0;
      if (!fills && !(node->is("aten::mul") && mask && mask->keeps)) return nullptr;
      if (zeroed_ >= 0 && (zeroed_ != mask->size || zeroed_window_ != mask->window)) return nullptr;
      zeroed_ = mask->size;
      zeroed_window_ = mask->window;
      node = through_identities(node->args[0], *node);
    }
    return node;
  }

  /// A softmax in the type of the scores.
  static bool keeps_type(const Node& softmax) {
    const Argument& type = softmax.arg("dtype");
    if (type.is_none()) return true;
    const auto& meta = softmax.args[0].is_value() ? softmax.args[0].value->meta : std::nullopt;
    return meta && type.kind == Argument::Kind::literal && type.literal.isInt() &&
           type.literal.toScalarType() == meta->dtype;
  }

  /// The node behind one that scales or masks; null where it does neither.
  const Node* peel(const Node& node) {
    size_t next = 0;
    if (masks_.reads_state(node)) return nullptr;
    if (node.is("aten::tanh")) {
      changes_.push_back({.kind = ScoreChange::Kind::cap});
      return through_identities(node.args[0], node);
    }
    if (node.args.size() < 2) return nullptr;
    const bool known =
        scales(node, next) || fills(node) || chooses(node, next) || adds(node, next) || keeps(node, next);
    return known ? through_identities(node.args[next], node) : nullptr;
  }

  /// q k^T, k^T multiplied by numbers perhaps. Keys that were turned by the permute that splits heads are
  /// turned back by another one.
  bool take_operands(const Node& product) {
    if (!product.args[0].is_value() || !product.args[1].is_value()) return false;
    scores_.query = product.args[0];
    Argument key = product.args[1];
    const Node* turned = key.value->producer;
    for (size_t next = 0; turned->kind() == Node::Kind::call && scales(*turned, next); next = 0) {
      key = turned->args[next];
      turned = key.value->producer;
    }
    if (turned->kind() != Node::Kind::call) return false;
    const std::vector<int64_t> order = order_of(*turned);
    if (order.size() < 3 || !turned->args[0].is_value()) return false;
    std::vector<int64_t> swap(order.size());
    std::iota(swap.begin(), swap.end(), 0);
    std::swap(swap[swap.size() - 1], swap[swap.size() - 2]);
    scores_.key_is_swapped = order == swap;
    if (!scores_.key_is_swapped && !(turned->is("aten::permute") && order.size() == 4)) return false;
    scores_.key = scores_.key_is_swapped ? turned->args[0] : key;
    return true;
  }

  /// A mask of another size would be one of other scores: it broadcasts them.
  bool mask_fits() const {
    const auto &query = scores_.query.value->meta, &key = scores_.key.value->meta;
    if (!query || !key || query->sizes.size() != key->sizes.size()) return false;
    const size_t rank = query->sizes.size();
    const int64_t queries = query->sizes[rank - 2].offset;
    const int64_t keys = key->sizes[rank - (scores_.key_is_swapped ? 2 : 1)].offset;
    const StepMasks& masks = scores_.masks;
    if (masks.causal && (masks.later != queries || masks.later != keys)) return false;
    const auto fits = [&](const Value* row) { return row->meta->sizes.back().offset == keys; };
    return (masks.values == nullptr || fits(masks.values)) &&
           std::ranges::all_of(masks.keys, [&](const HiddenKeys& hidden) { return fits(hidden.value); });
  }

  bool change(ScoreChange::Kind kind, double number, std::optional<PickedScores> where) {
    if (where) changes_.push_back({.kind = kind, .number = number, .where = *std::move(where)});
    return where.has_value();
  }

  /// scores times or divided by a number
  bool scales(const Node& node, size_t& next) {
    const bool divides = node.is("aten::div") && node.args.size() == 2;
    if (!divides && !node.is("aten::mul")) return false;
    std::optional<double> number = masks_.number(node.args[1]);
    if (!number && !divides && (number = masks_.number(node.args[0]))) next = 1;
    if (!number || (divides && *number == 0) || !node.args[next].is_value()) return false;
    changes_.push_back({.kind = ScoreChange::Kind::scale, .number = divides ? 1 / *number : *number});
    return true;
  }

  /// masked_fill(scores, mask, a large negative number)
  bool fills(const Node& node) {
    if (!node.is("aten::masked_fill")) return false;
    const std::optional<double> fill = masks_.number(node.args[2]);
    return fill && change(ScoreChange::Kind::fill, *fill, score_masks_.where_true(node.args[1], rank_));
  }

  /// where(mask, scores, a large negative number), or the other way round
  bool chooses(const Node& node, size_t& next) {
    if (!node.is("aten::where") || node.args.size() != 3) return false;
    for (const bool shows : {true, false}) {
      next = shows ? 1 : 2;
      const std::optional<double> fill = masks_.number(node.args[3 - next]);
      if (!fill || !node.args[next].is_value()) continue;
      return change(ScoreChange::Kind::fill, *fill,
                    shows ? score_masks_.where_false(node.args[0], rank_)
                          : score_masks_.where_true(node.args[0], rank_));
    }
    return false;
  }

  /// scores + mask, mask + scores or scores - mask, the mask being 0 or a large number
  bool adds(const Node& node, size_t& next) {
    const bool subtracts = node.target() == "aten::sub.Tensor";
    if ((!subtracts && node.target() != "aten::add.Tensor") || graph::number(node.args[2]) != 1.0)
      return false;
    for (next = 0; next < (subtracts ? 1 : 2); ++next) {
      const std::optional<AddedMask> mask =
          score_masks_.added(node.args[1 - next], subtracts ? -1 : 1, rank_);
      if (!mask || !node.args[next].is_value() || !same_sizes(*node.output(), *node.args[next].value))
        continue;
      for (const AddedNumber& one : mask->numbers) change(ScoreChange::Kind::add, one.number, one.where);
      if (mask->values != nullptr)
        changes_.push_back({.kind = ScoreChange::Kind::add_values, .where = {}, .values = mask->values});
      return true;
    }
    return false;
  }

  /// scores * mask, the mask being 1 where a score is open and 0 elsewhere: what is added afterwards hides
  bool keeps(const Node& node, size_t& next) {
    if (!node.is("aten::mul")) return false;
    next = masks_.is_fixed(node.args[0]) ? 1 : 0;
    const std::optional<Triangle> mask = masks_.triangle(node.args[1 - next]);
    if (!mask || !mask->keeps) return false;
    changes_.push_back({.kind = ScoreChange::Kind::scale,
                        .number = 0,
                        .where = {mask->size, {}, mask->window},
                        .only_at = true});
    return true;
  }

  FixedMasks& masks_;
  ScoreMasks score_masks_;
  Scores scores_;
  std::vector<ScoreChange> changes_;
  int64_t rank_ = 0;
  int64_t zeroed_ = -1;  ///< the size of the triangle in which weights are set to 0
  int64_t zeroed_window_ = 0;
};

int64_t size_at(const Value* value, int64_t from_end) {
  return value->meta->sizes[value->meta->sizes.size() - static_cast<size_t>(from_end)].offset;
}

/// A call of this op before `node`, of the same module.
Value* call_before(Graph& graph, const char* target, std::vector<Argument> args, Node& node) {
  Node* made = graph.call(target, std::move(args), &node);
  made->scope = node.scope;
  return made->output();
}

Argument none() {
  return c10::IValue();
}

/// Truth [N, 1, 1, keys] where a key is hidden.
Value* hidden_keys(Graph& graph, const std::vector<HiddenKeys>& keys, Node& node) {
  Value* all = nullptr;
  for (const HiddenKeys& one : keys) {
    Value* row = one.value;
    if (row->meta->sizes.size() == 3) row = call_before(graph, "aten::unsqueeze", {row, literal(1)}, node);
    if (one.where == HiddenKeys::Where::is_false) row = call_before(graph, "aten::logical_not", {row}, node);
    if (one.where == HiddenKeys::Where::is_zero)
      row = call_before(graph, "aten::eq.Scalar", {row, literal(0)}, node);
    all = all == nullptr ? row : call_before(graph, "aten::logical_or", {all, row}, node);
  }
  return all;
}

/// The mask that is added: numbers as they are, or one where there is truth and 0 elsewhere.
Argument added_mask(Graph& graph, const StepMasks& masks, int64_t queries, Node& node) {
  Argument keys = none();
  if (masks.values != nullptr) keys = masks.values;
  if (!masks.keys.empty()) {
    const c10::IValue no = false;
    Value* hidden = hidden_keys(graph, masks.keys, node);
    Value* zeros =
        call_before(graph, "aten::to.dtype", {hidden, c10::IValue(at::kFloat), no, no, none()}, node);
    keys =
        call_before(graph, "aten::masked_fill.Scalar", {zeros, hidden, c10::IValue(masks.key_number)}, node);
  }
  if (!keys.is_value() || (!masks.causal && masks.blind == runtime::BlindQueries::zeros)) return keys;
  return attention_mask(graph, keys, queries, masks.causal, masks.blind, node);
}

/// How many heads stand before or in the first of three dimensions: [N, S, depth] or [N * heads, S, depth]; 0
/// where something else does.
int64_t heads_of(const Value* rows) {
  if (!rows->meta || rows->meta->sizes.size() != 3) return 0;
  const graph::SizeExpr& first = rows->meta->sizes[0];
  return first == graph::SizeExpr{first.numerator, 1, 0} ? first.numerator : 0;
}

/// Attention of three dimensions as that of four, with its heads as dimension 1.
void fuse_with_heads(Graph& graph, Node& product, std::vector<Argument> args, int64_t heads,
                     const WindowAndCap& more) {
  for (size_t i = 0; i < 3; ++i) {
    const auto& sizes = args[i].value->meta->sizes;
    args[i] = heads == 1
                  ? call_before(graph, "aten::unsqueeze", {args[i], literal(1)}, product)
                  : call_before(graph, "aten::view",
                                {args[i], ints({-1, heads, sizes[1].offset, sizes[2].offset})}, product);
  }
  Value* joined = call_before(graph, kAttention, args, product);
  make_attention(graph, *joined->producer, std::move(args), more);
  if (heads == 1) return graph.retarget(&product, "aten::squeeze.dim", {joined, literal(1)});
  graph.retarget(&product, "aten::flatten.using_ints", {joined, literal(0), literal(1)});
}

/// True where the step takes [N, heads, queries, depth] and keys and values of these sizes with a mask of
/// keys.
bool takes_masks(const Value& query, const std::vector<graph::SizeExpr>& keys, const Value& value) {
  if (!query.meta || !value.meta) return false;
  const std::vector<graph::SizeExpr>& q = query.meta->sizes;
  return q.size() == 4 && q[0] == graph::SizeExpr{1, 1, 0} && keys == value.meta->sizes && keys[0] == q[0] &&
         keys[1] == q[1];
}

/// False where the values are none that the node can have.
bool fuse(Graph& graph, Node& product, const Scores& scores) {
  if (!product.args[1].is_value() || graph::rank(product.args[1]) != graph::rank(scores.query)) return false;
  const bool rows = graph::rank(scores.query) == 3;
  const int64_t heads = rows ? heads_of(scores.query.value) : 0;
  if (rows && (heads == 0 || heads_of(scores.key.value) != heads || heads_of(product.args[1].value) != heads))
    return false;
  const StepMasks& masks = scores.masks;
  const bool masked = !masks.keys.empty() || masks.values != nullptr;
  std::vector<graph::SizeExpr> keys = scores.key.value->meta->sizes;
  if (!scores.key_is_swapped) std::swap(keys[keys.size() - 1], keys[keys.size() - 2]);
  const bool fits = rows ? heads == 1 && keys == product.args[1].value->meta->sizes
                         : takes_masks(*scores.query.value, keys, *product.args[1].value);
  const WindowAndCap more{masks.window, masks.softcap};
  const bool special = masks.window > 0 || masks.softcap > 0;
  if (special && !fits) return false;
  if (masked && (rows || masks.causal || masks.blind != runtime::BlindQueries::zeros) && !fits) return false;
  const Argument key = scores.key_is_swapped ? scores.key
                                             : call_before(graph, "aten::transpose.int",
                                                           {scores.key, literal(-2), literal(-1)}, product);
  const Argument mask = added_mask(graph, masks, size_at(scores.query.value, 2), product);
  const bool made = mask.is_value() && mask.value->producer->is(kAttentionMask);
  std::vector<Argument> args = {scores.query,
                                key,
                                product.args[1],
                                mask,
                                c10::IValue(0.0),
                                c10::IValue(masks.causal && !made),
                                c10::IValue(masks.scale)};
  if (rows) {
    fuse_with_heads(graph, product, std::move(args), heads, more);
  } else {
    make_attention(graph, product, std::move(args), more);
  }
  return true;
}

/// The masks of an attention node that the step has; nothing for others.
std::optional<StepMasks> masks_of(ScoreMasks& masks, const Node& attention) {
  const Argument& mask = attention.arg("attn_mask");
  const int64_t rank = graph::rank(attention.arg("query"));
  if (!mask.is_value() || !mask.value->meta) return std::nullopt;
  std::vector<ScoreChange> changes;
  if (mask.value->meta->dtype == at::kBool) {
    const std::optional<PickedScores> where = masks.where_false(mask, rank);
    if (!where) return std::nullopt;
    changes.push_back({.kind = ScoreChange::Kind::fill, .number = -INFINITY, .where = *where});
  } else {
    const std::optional<AddedMask> added = masks.added(mask, 1, rank);
    if (!added) return std::nullopt;
    for (const AddedNumber& one : added->numbers)
      changes.push_back({.kind = ScoreChange::Kind::add, .number = one.number, .where = one.where});
    if (added->values != nullptr)
      changes.push_back({.kind = ScoreChange::Kind::add_values, .where = {}, .values = added->values});
  }
  // A query that sees no key gives zeros, as LibTorch has it.
  return step_masks_of(changes, runtime::BlindQueries::zeros);
}

/// The window of a mask, or of the mask that the node has in longer texts.
void take_window(KnownWindows& windows, const Node& node, StepMasks& found) {
  if (found.window > 0) windows[node.name()] = found.window;
  const auto known = windows.find(node.name());
  const bool plain = found.causal && found.keys.empty() && found.values == nullptr;
  if (plain && known != windows.end() && known->second >= found.later) found.window = known->second;
}

/// A mask of an attention node that hides what comes later becomes is_causal, one that hides keys of a sample
/// numbers that are added, and one of zeros none.
void name_masks(Graph& graph, FixedMasks& fixed, Node& attention, KnownWindows& windows) {
  if (!attention.arg("attn_mask").is_value() || has_attention_step(attention)) return;
  ScoreMasks masks(fixed);
  std::optional<StepMasks> found = masks_of(masks, attention);
  const Value *query = attention.arg("query").value, *key = attention.arg("key").value;
  if (!found || !query->meta || !key->meta || query->meta->sizes.size() < 3) return;
  const auto size_of = [](const Value* value) { return size_at(value, 2); };
  if (found->causal && (size_of(query) != found->later || size_of(key) != found->later)) return;
  if (!found->keys.empty() || found->values != nullptr) {
    if (!takes_masks(*query, key->meta->sizes, *attention.arg("value").value)) return;
    const auto fits = [&](const Value* row) { return row->meta->sizes.back().offset == size_of(key); };
    if (found->values != nullptr && !fits(found->values)) return;
    for (const HiddenKeys& one : found->keys) {
      if (!fits(one.value)) return;
    }
    attention.arg("attn_mask") = added_mask(graph, *found, size_of(query), attention);
    return;
  }
  take_window(windows, attention, *found);
  const Argument mask = attention.arg("attn_mask");
  attention.arg("attn_mask") = none();
  if (found->window > 0 && !has_attention_step(attention)) {
    attention.arg("attn_mask") = mask;
    return;
  }
  attention.arg("is_causal") = c10::IValue(found->causal);  // a mask of zeros hides nothing
  if (found->window > 0) make_attention(graph, attention, attention.args, {found->window, 0});
}

/// Causal attention of three dimensions gets a dimension of heads.
void give_heads(Graph& graph, Node& attention) {
  if (!bool_arg(attention, "is_causal") || !attention.arg("attn_mask").is_none()) return;
  const int64_t heads = heads_of(attention.args[0].value);
  for (size_t i = 0; i < 3; ++i) {
    if (heads == 0 || heads_of(attention.args[i].value) != heads) return;
  }
  fuse_with_heads(graph, attention, attention.args, heads, window_and_cap(attention));
}

Argument constant(Graph& graph, const std::string& wish, const at::Tensor& tensor) {
  const std::string name = graph.unique_name(wish);
  graph.set_attribute(name, {graph::Attribute::Kind::constant, tensor});
  return graph.attribute(name);
}

bool is_truth(const Value& mask) {
  return mask.meta && mask.meta->dtype == at::kBool;
}

/// True where a score of the node is hidden; none where all are seen. Of a mask that is added: where it is
/// -inf, if that may be so for all keys of a query.
Argument hidden_scores(Graph& graph, Node& node) {
  const Argument mask = node.arg("attn_mask");
  if (mask.is_value()) {
    const bool truth = is_truth(*mask.value);
    if (!truth && !graph::may_hide_all_keys(graph, *mask.value)) return none();
    const at::Tensor held = graph.attribute_tensor(mask.value);
    if (held.defined())
      return constant(graph, node.name() + ".hidden", truth ? held.logical_not() : held == -INFINITY);
    if (truth) return call_before(graph, "aten::logical_not", {mask}, node);
    return call_before(graph, "aten::eq.Scalar", {mask, c10::IValue(-INFINITY)}, node);
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
  if (mask.is_value() && !is_truth(*mask.value)) {
    scores = call_before(graph, "aten::add.Tensor", {scores, mask, c10::IValue(int64_t{1})}, node);
  } else if (hidden.is_value()) {
    scores = call_before(graph, "aten::masked_fill.Scalar", {scores, hidden, c10::IValue(-INFINITY)}, node);
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

graph::PassReport fuse_written_attention(Graph& graph, KnownWindows& windows) {
  graph::PassReport report{.pass = "fuse_written_attention", .changes = {}, .near_misses = {}};
  FixedMasks masks(graph);
  for (Node* node : calls(graph)) {
    std::optional<Scores> scores = Matcher(masks).match(*node);
    if (scores) take_window(windows, *node, scores->masks);
    if (scores && fuse(graph, *node, *scores)) {
      report.changes.push_back(node->name() +
                               ": softmax and two products -> aten::scaled_dot_product_attention");
    }
    if (!is_attention(*node)) continue;
    name_masks(graph, masks, *node, windows);
    give_heads(graph, *node);
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
