#include "ulp/lower/attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ulp/lower/attention_mask.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/windowed_attention.h"

namespace ulp::lowering {

using graph::Graph;
using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Step;

namespace {

bool is_view_or_flatten(const Node& node) {
  return node.is("aten::view") || node.is("aten::reshape") || node.is("aten::flatten") ||
         node.is("aten::_unsafe_view");
}

/// Swaps dimensions 1 and 2 of four.
bool swaps_heads(const Node& node) {
  if (node.kind() != Node::Kind::call || !node.output()->meta || node.output()->meta->sizes.size() != 4)
    return false;
  const auto positive = [](int64_t dim) { return dim < 0 ? dim + 4 : dim; };
  if (node.is("aten::transpose")) {
    const int64_t a = positive(int_arg(node, "dim0")), b = positive(int_arg(node, "dim1"));
    return std::min(a, b) == 1 && std::max(a, b) == 2;
  }
  return node.is("aten::permute") && ints_arg(node, "dims") == std::vector<int64_t>{0, 2, 1, 3};
}

const Node* only_user(const Graph& graph, const Value* value) {
  const std::vector<Node*> users = graph.users(value);
  return users.size() == 1 && users[0]->kind() == Node::Kind::call ? users[0] : nullptr;
}

/// The rows [N, S, heads * depth] that an operand of shape [N, heads, S, depth] was split from by view and
/// transpose(1, 2); null where it was made in another way.
const Value* split_from(const Node& attention, const char* name) {
  const Value* heads = value_arg(attention, name);
  const Node& swap = *heads->producer;
  if (swaps_heads(swap)) {
    const Value* split = swap.args.at(0).value;
    const Node& reshape = *split->producer;
    if (reshape.kind() == Node::Kind::call && is_view_or_flatten(reshape)) {
      const Value* rows = reshape.args.at(0).value;
      const std::vector<int64_t> from = shape_of(attention, *rows), to = shape_of(attention, *split);
      if (from.size() == 3 && from[0] == to[0] && from[1] == to[1] && from[2] == to[2] * to[3]) return rows;
    }
  }
  return nullptr;
}

std::vector<graph::SizeExpr> sizes_of(const std::vector<int64_t>& shape) {
  std::vector<graph::SizeExpr> sizes;
  for (const int64_t size : shape) {
    sizes.push_back(size == runtime::kBatch ? graph::SizeExpr{1, 1, 0} : graph::SizeExpr{0, 1, size});
  }
  return sizes;
}

constexpr std::array kOperands = {"query", "key", "value"};

/// The form in which an operand's rows are held.
Form held_form(Builder& builder, const Node& attention, const char* name) {
  const Value* rows = split_from(attention, name);
  Form form = builder.form_of(attention, rows != nullptr ? rows : value_arg(attention, name));
  form.layout = Layout::plain;
  return form;
}

/// An operand as rows: what it was split from, or its heads side by side. Codes stay codes where all three operands are.
int32_t rows_of(Builder& builder, const Node& attention, const char* name, bool codes) {
  const Form wanted = codes ? held_form(builder, attention, name) : Form{builder.float_type(), Layout::plain};
  if (const Value* rows = split_from(attention, name)) return builder.as(attention, rows, wanted);
  const Value* heads = value_arg(attention, name);
  const std::vector<int64_t> shape = shape_of(attention, *heads);
  StridedView view;
  if (builder.form_of(attention, heads).type == wanted.type) {
    view = builder.view_of(attention, heads);
  } else {
    const int32_t wide = builder.as(attention, heads, wanted);
    view = whole_view(wide, builder.plan().tensors[static_cast<size_t>(wide)]);
  }
  const std::vector<int64_t> joined = {shape[0], shape[2], shape[1] * shape[3]};
  return builder.laid_out(attention, reshaped(permuted(view, {0, 2, 1, 3}), sizes_of(joined)).value()).tensor;
}

/// A mask of the keys alone: [N, 1, 1, keys].
bool is_by_key(const Value& mask, int64_t keys) {
  if (!mask.meta || mask.meta->sizes.size() != 4) return false;
  const auto& sizes = mask.meta->sizes;
  const graph::SizeExpr one{0, 1, 1}, all{0, 1, keys};
  return sizes[0] == graph::SizeExpr{1, 1, 0} && sizes[1] == one && sizes[2] == one && sizes[3] == all;
}

/// Integers that an input holds, moved or not: what other steps compute is held as f32.
bool is_moved_input(const Value* ids) {
  while (ids->producer->kind() == Node::Kind::call && is_move(*ids->producer) &&
         ids->producer->args[0].is_value()) {
    ids = ids->producer->args[0].value;
  }
  return ids->producer->kind() == Node::Kind::input;
}

/// The node `tokens != a number` that the mask was made of; null where it was made in another way.
const Node* tokens_of(const Value& mask) {
  const Node* node = mask.producer;
  while (node->is("aten::unsqueeze") || node->is("aten::expand") || is_view_or_flatten(*node)) {
    node = node->args.at(0).value->producer;
  }
  if (!node->is("aten::ne") || node->arg("other").is_value() || !node->args.at(0).is_value()) return nullptr;
  const auto& ids = node->args[0].value->meta;
  const bool integers = ids && (ids->dtype == at::kLong || ids->dtype == at::kInt) && ids->sizes.size() == 2;
  return integers && is_moved_input(node->args[0].value) ? node : nullptr;
}

bool adds_numbers(const Value& mask) {
  return mask.meta && mask.meta->dtype == at::kFloat;
}

/// Numbers [N, 1, 1, keys] as they lie.
int32_t added_mask(Builder& builder, const Node& attention, const Value* mask, int64_t keys) {
  const int32_t wide = builder.as(attention, mask, {DataType::f32, Layout::plain});
  const StridedView view = whole_view(wide, builder.plan().tensors[static_cast<size_t>(wide)]);
  return builder.laid_out(attention, reshaped(view, sizes_of({runtime::kBatch, keys})).value()).tensor;
}

/// The tensor of the mask [N, keys] that is added to the scores.
int32_t mask_tensor(Builder& builder, const Node& attention, int64_t keys) {
  const Node* made_mask = attention_mask_of(attention);
  const Value* mask = made_mask != nullptr ? made_mask->args[0].value : value_arg(attention, "attn_mask");
  if (adds_numbers(*mask)) return added_mask(builder, attention, mask, keys);
  const Node* node = tokens_of(*mask);
  if (builder.bound(node->output())) {
    return builder.as(attention, node->output(), {DataType::f32, Layout::plain});
  }
  const Value* ids = value_arg(*node, "self");
  Step step = step_of(runtime::Op::token_mask, *node);
  step.attributes = runtime::TokenAttributes{static_cast<int64_t>(*number_arg(*node, "other"))};
  step.inputs = {builder.as(*node, ids, builder.form_of(*node, ids))};
  const int32_t made = builder.emit(std::move(step), node->output()->name, {}, shape_of(*node, *ids));
  builder.bind(node->output(), made);
  return made;
}

float scale_of(const Node& attention, int64_t depth) {
  const std::optional<double> given = number_arg(attention, "scale");
  return static_cast<float>(given.value_or(1.0 / std::sqrt(static_cast<double>(depth))));
}

}  // namespace

namespace {

/// Fewer heads of keys than of queries, each for as many that lie side by side.
bool shares_heads(const Node& attention) {
  const graph::SizeExpr &q = attention.arg("query").value->meta->sizes[1],
                        &k = attention.arg("key").value->meta->sizes[1];
  return bool_arg(attention, "enable_gqa") && attention.arg("attn_mask").is_none() && q.constant() &&
         k.constant() && k.offset > 0 && q.offset % k.offset == 0;
}

}  // namespace

bool has_attention_step(const Node& attention) {
  const Value *query = attention.arg("query").value, *key = attention.arg("key").value;
  const Value* value = attention.arg("value").value;
  if (!query->meta || !key->meta || !value->meta) return false;
  const auto &q = query->meta->sizes, &k = key->meta->sizes;
  if (q.size() != 4 || k != value->meta->sizes || k.size() != 4) return false;
  if (q[1] != k[1] && !shares_heads(attention)) return false;
  if (q[0] != graph::SizeExpr{1, 1, 0} || k[0] != q[0])
    return false;  // rows of the batch have no view of heads
  const graph::Argument& mask = attention.arg("attn_mask");
  if (mask.is_none()) return true;
  if (const Node* made = attention_mask_of(attention))
    return is_by_key(*made->args[0].value, k[2].offset) && adds_numbers(*made->args[0].value);
  return is_by_key(*mask.value, k[2].offset) &&
         (adds_numbers(*mask.value) || tokens_of(*mask.value) != nullptr);
}

std::optional<JoinedHeads> joined_heads(const Graph& graph, const Node& attention) {
  if (!is_attention(attention)) return std::nullopt;
  const Node* swap = only_user(graph, attention.output());
  if (swap == nullptr || !swaps_heads(*swap)) return std::nullopt;
  const Node* reshape = only_user(graph, swap->output());
  // An identity between them (contiguous, clone) was removed before.
  if (reshape == nullptr || !is_view_or_flatten(*reshape)) return std::nullopt;
  const auto &from = swap->output()->meta, &to = reshape->output()->meta;
  const bool joins = from && to && to->sizes.size() == 3 && from->sizes.size() == 4 &&
                     from->sizes[0] == to->sizes[0] && from->sizes[1] == to->sizes[1];
  return joins ? std::optional(JoinedHeads{swap, reshape}) : std::nullopt;
}

bool feeds_attention(const Graph& graph, const Value* value) {
  return std::ranges::all_of(graph.users(value), [&](const Node* user) {
    if (is_attention(*user)) return true;
    const bool moves = user->kind() == Node::Kind::call &&
                       (user->is("aten::transpose") || user->is("aten::permute") ||
                        user->is("aten::unsqueeze") || user->is("aten::expand") || is_view_or_flatten(*user));
    return moves && feeds_attention(graph, user->output());
  });
}

void lower_part_of_attention(Builder& builder, const Group& group) {
  if (!feeds_attention(builder.graph(), group.root->output())) {
    unsupported(*group.root, "expected it only around scaled_dot_product_attention");
  }
}

namespace {

void lower_attention(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const graph::Argument& dropout = node.arg("dropout_p");
  if (dropout.kind == graph::Argument::Kind::literal && number_arg(node, "dropout_p") != 0.0) {
    unsupported(node, "expected no dropout in eval mode");
  }
  Step step = step_of(runtime::Op::attention, node);
  const Form form = result_form(builder, group, Layout::plain);
  const std::vector<int64_t> query = shape_of(node, *value_arg(node, "query"));
  const std::vector<int64_t> key = shape_of(node, *value_arg(node, "key"));
  if (!has_attention_step(node)) {
    unsupported(node,
                "expected [N, heads, S, depth], keys and values of one shape with as many heads or, without "
                "a mask, a "
                "divisor of them (enable_gqa), and no mask or one of the keys [N, 1, 1, keys]");
  }
  const bool codes = std::ranges::all_of(
      kOperands, [&](const char* name) { return held_form(builder, node, name).type == DataType::u8; });
  for (const char* name : kOperands) step.inputs.push_back(rows_of(builder, node, name, codes));
  if (!node.arg("attn_mask").is_none()) step.inputs.push_back(mask_tensor(builder, node, key[2]));
  const Node* mask = attention_mask_of(node);
  const WindowAndCap more = window_and_cap(node);
  step.attributes = runtime::AttentionAttributes{
      .heads = query[1],
      .scale = scale_of(node, query[3]),
      .causal = bool_arg(node, "is_causal") || (mask != nullptr && bool_arg(*mask, "causal")),
      .blind = mask != nullptr ? static_cast<runtime::BlindQueries>(int_arg(*mask, "blind"))
                               : runtime::BlindQueries::zeros,
      .kv_heads = key[1] == query[1] ? 0 : key[1],
      .window = more.window,
      .softcap = static_cast<float>(more.softcap)};
  if (group.last != &node) return emit_same(builder, group, std::move(step), form);
  // Nobody joins the heads right behind it: they are a view of the rows.
  const std::vector<int64_t> rows = {query[0], query[2], query[1] * query[3]};
  const int32_t made = builder.emit(std::move(step), node.output()->name, form, rows);
  const StridedView whole = whole_view(made, builder.plan().tensors[static_cast<size_t>(made)]);
  const std::vector<int64_t> split = {query[0], query[2], query[1], query[3]};
  builder.bind_view(node.output(), permuted(reshaped(whole, sizes_of(split)).value(), {0, 2, 1, 3}));
}

}  // namespace

LoweringTable attention_lowerings() {
  static constexpr Lowering kTable[] = {{"aten::scaled_dot_product_attention", lower_attention},
                                        {kWindowedAttention, lower_attention},
                                        {kAttentionMask, lower_part_of_attention},
                                        {"aten::ne", lower_part_of_attention}};
  return kTable;
}

}  // namespace ulp::lowering
