#include "ulp/lower/score_masks.h"

#include <c10/core/ScalarType.h>

#include <algorithm>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Node;
using graph::SizeExpr;
using graph::Value;

namespace {

/// The call that makes a mask; null for what is none.
const Node* maker_of(const Argument& mask) {
  if (!mask.is_value() || mask.value->producer->kind() != Node::Kind::call) return nullptr;
  return mask.value->producer;
}

bool has_type(const Argument& mask, at::ScalarType type) {
  return mask.is_value() && mask.value->meta && mask.value->meta->dtype == type;
}

/// A row of keys for each sample.
bool is_key_row(const Value& value) {
  if (!value.meta) return false;
  const std::vector<SizeExpr>& sizes = value.meta->sizes;
  if ((sizes.size() != 3 && sizes.size() != 4) || sizes[0] != SizeExpr{1, 1, 0} || !sizes.back().constant())
    return false;
  return std::all_of(sizes.begin() + 1, sizes.end() - 1, [](const SizeExpr& size) {
    return size == SizeExpr{0, 1, 1};
  });
}

/// True for a view that repeats a mask, or gives it the dimension of heads: what it is of is read in its
/// place.
bool repeats(const Node& node) {
  if (is_any(node, {"aten::expand", "aten::expand_as"})) return node.args[0].is_value();
  return node.is("aten::unsqueeze") && graph::rank(node.args[0]) == 3 && graph::integer(node.args[1]) == 1;
}

int64_t rank_inside(const Node& node, int64_t rank) {
  return node.is("aten::unsqueeze") ? rank - 1 : rank;
}

/// All scores of both.
std::optional<PickedScores> all_of_both(std::optional<PickedScores> a, const std::optional<PickedScores>& b) {
  if (!a || !b || (a->later >= 0 && b->later >= 0 && a->later != b->later)) return std::nullopt;
  a->later = std::max(a->later, b->later);
  a->window =
      a->window > 0 && b->window > 0 ? std::min(a->window, b->window) : std::max(a->window, b->window);
  for (const HiddenKeys& keys : b->keys) {
    if (std::ranges::count(a->keys, keys) == 0) a->keys.push_back(keys);
  }
  return a;
}

}  // namespace

std::optional<PickedScores> ScoreMasks::picked_row(const Argument& mask, HiddenKeys::Where where,
                                                   int64_t rank) const {
  if (!mask.is_value() || fixed_.is_fixed(mask) || !is_key_row(*mask.value) || graph::rank(mask) != rank)
    return std::nullopt;
  return PickedScores{.later = -1, .keys = {{mask.value, where}}};
}

template <typename Part>
std::optional<PickedScores> ScoreMasks::both(const Node& node, Part part, int64_t rank) {
  if (node.args.size() < 2) return std::nullopt;
  return all_of_both((this->*part)(node.args[0], rank), (this->*part)(node.args[1], rank));
}

std::optional<PickedScores> ScoreMasks::where_true(const Argument& mask, int64_t rank) {
  if (const std::optional<Triangle> triangle = fixed_.triangle(mask)) {
    return triangle->hides ? std::optional(PickedScores{triangle->size, {}, triangle->window}) : std::nullopt;
  }
  if (!has_type(mask, at::kBool)) return std::nullopt;
  if (auto row = picked_row(mask, HiddenKeys::Where::is_true, rank)) return row;
  const Node* node = maker_of(mask);
  if (node == nullptr) return std::nullopt;
  if (repeats(*node)) return where_true(node->args[0], rank_inside(*node, rank));
  if (is_any(*node, {"aten::logical_or", "aten::bitwise_or", "aten::__or__", "aten::add", "aten::maximum"}))
    return both(*node, &ScoreMasks::where_true, rank);
  if (is_any(*node, {"aten::logical_not", "aten::bitwise_not"})) return where_false(node->args[0], rank);
  if (node->is("aten::eq") && fixed_.number(node->args[1]) == 0.0) return where_zero(node->args[0], rank);
  return std::nullopt;
}

std::optional<PickedScores> ScoreMasks::where_false(const Argument& mask, int64_t rank) {
  if (const std::optional<Triangle> triangle = fixed_.triangle(mask)) {
    return triangle->shows ? std::optional(PickedScores{triangle->size, {}, triangle->window}) : std::nullopt;
  }
  if (!has_type(mask, at::kBool)) return std::nullopt;
  if (auto row = picked_row(mask, HiddenKeys::Where::is_false, rank)) return row;
  const Node* node = maker_of(mask);
  if (node == nullptr) return std::nullopt;
  if (repeats(*node)) return where_false(node->args[0], rank_inside(*node, rank));
  if (is_any(*node,
             {"aten::logical_and", "aten::bitwise_and", "aten::__and__", "aten::mul", "aten::minimum"}))
    return both(*node, &ScoreMasks::where_false, rank);
  if (is_any(*node, {"aten::logical_not", "aten::bitwise_not"})) return where_true(node->args[0], rank);
  const bool truth = is_any(*node, {"aten::to", "aten::_to_copy"}) ||
                     (node->is("aten::ne") && fixed_.number(node->args[1]) == 0.0);
  return truth ? where_zero(node->args[0], rank) : std::nullopt;
}

std::optional<PickedScores> ScoreMasks::where_zero(const Argument& mask, int64_t rank) {
  if (has_type(mask, at::kBool)) return where_false(mask, rank);
  if (const std::optional<Triangle> triangle = fixed_.triangle(mask)) {
    return triangle->keeps ? std::optional(PickedScores{triangle->size, {}, triangle->window}) : std::nullopt;
  }
  if (auto row = picked_row(mask, HiddenKeys::Where::is_zero, rank)) return row;
  const Node* node = maker_of(mask);
  if (node == nullptr) return std::nullopt;
  if (repeats(*node)) return where_zero(node->args[0], rank_inside(*node, rank));
  if (node->is("aten::mul")) return both(*node, &ScoreMasks::where_zero, rank);
  // A cast to integers may make a number 0.
  const bool cast = is_any(*node, {"aten::to", "aten::_to_copy", "aten::type_as"}) &&
                    node->args[0].is_value() && node->args[0].value->meta &&
                    !at::isFloatingType(node->args[0].value->meta->dtype);
  return cast ? where_zero(node->args[0], rank) : std::nullopt;
}

bool ScoreMasks::is_zero_or_one(const Argument& mask) {
  if (has_type(mask, at::kBool)) return true;
  if (const std::optional<Triangle> triangle = fixed_.triangle(mask)) return triangle->keeps;
  const Node* node = maker_of(mask);
  if (node == nullptr) return false;
  if (repeats(*node) || is_any(*node, {"aten::to", "aten::_to_copy", "aten::type_as"}))
    return is_zero_or_one(node->args[0]);
  return node->is("aten::mul") && node->args.size() == 2 && is_zero_or_one(node->args[0]) &&
         is_zero_or_one(node->args[1]);
}

/// (1 - mask) * number or (mask - 1) * number, of a mask of zeros and ones: the number, or its negative,
/// where it is 0.
std::optional<AddedMask> ScoreMasks::weighted(const Node& node, double sign, int64_t rank) {
  if (!node.is("aten::mul") || node.args.size() != 2) return std::nullopt;
  const size_t of = fixed_.number(node.args[0]) ? 1 : 0;
  const std::optional<double> number = fixed_.number(node.args[1 - of]);
  const Node* less = maker_of(node.args[of]);
  if (!number || less == nullptr || less->args.size() < 3 || graph::number(less->args[2]) != 1.0)
    return std::nullopt;
  const bool turned = less->is("aten::rsub");
  if (!turned && !less->is("aten::sub")) return std::nullopt;
  const bool first_is_one = fixed_.number(less->args[0]) == 1.0,
             second_is_one = fixed_.number(less->args[1]) == 1.0;
  if (first_is_one == second_is_one) return std::nullopt;
  const Argument& mask = less->args[first_is_one ? 1 : 0];
  if (!is_zero_or_one(mask)) return std::nullopt;
  const std::optional<PickedScores> zeros = where_zero(mask, rank);
  if (!zeros) return std::nullopt;
  const double one_less = first_is_one != turned ? 1 : -1;  // 1 - mask, or mask - 1, where the mask is 0
  return AddedMask{.numbers = {{*zeros, sign * one_less * *number}}, .values = nullptr};
}

std::optional<AddedMask> ScoreMasks::added(const Argument& mask, double sign, int64_t rank) {
  const std::optional<Triangle> triangle = fixed_.triangle(mask);
  // Of one query and one key any mask is causal.
  if ((!triangle || triangle->size > 1) && fixed_.number(mask) == 0.0) return AddedMask{};
  if (triangle) {
    const std::optional<double> number = sign < 0 ? triangle->takes : triangle->adds;
    if (!number) return std::nullopt;
    return AddedMask{.numbers = {{{triangle->size, {}, triangle->window}, *number}}, .values = nullptr};
  }
  if (!mask.is_value() || !mask.value->meta || !at::isFloatingType(mask.value->meta->dtype))
    return std::nullopt;
  const AddedMask values{.numbers = {}, .values = mask.value};
  const bool is_row = sign > 0 && rank == 4 && mask.value->meta->dtype == at::kFloat &&
                      !fixed_.is_fixed(mask) && is_key_row(*mask.value) && graph::rank(mask) == 4;
  const Node* node = maker_of(mask);
  if (node == nullptr) return is_row ? std::optional(values) : std::nullopt;  // an input
  std::optional<PickedScores> where;
  std::optional<double> number;
  if (node->is("aten::masked_fill") && fixed_.number(node->args[0]) == 0.0) {
    where = where_true(node->args[1], rank);
    number = fixed_.number(node->args[2]);
  } else if (node->is("aten::where") && node->args.size() == 3) {
    const bool open_first = fixed_.number(node->args[1]) == 0.0;
    if (open_first || fixed_.number(node->args[2]) == 0.0) {
      where = open_first ? where_false(node->args[0], rank) : where_true(node->args[0], rank);
      number = fixed_.number(node->args[open_first ? 2 : 1]);
    }
  }
  if (where && number) return AddedMask{.numbers = {{*where, sign * *number}}, .values = nullptr};
  const bool cast =
      is_any(*node, {"aten::to", "aten::_to_copy", "aten::type_as"}) && node->args[0].is_value();
  if (cast && node->args[0].value->meta && at::isFloatingType(node->args[0].value->meta->dtype))
    return added(node->args[0], sign, rank);
  if (auto made = weighted(*node, sign, rank)) return made;
  if (is_row) return values;
  if (repeats(*node)) return added(node->args[0], sign, rank_inside(*node, rank));
  if (node->target() == "aten::add.Tensor" && graph::number(node->args[2]) == 1.0) {
    std::optional<AddedMask> a = added(node->args[0], sign, rank);
    const std::optional<AddedMask> b = added(node->args[1], sign, rank);
    if (!a || !b || (a->values != nullptr && b->values != nullptr)) return std::nullopt;
    a->numbers.insert(a->numbers.end(), b->numbers.begin(), b->numbers.end());
    if (b->values != nullptr) a->values = b->values;
    return a;
  }
  return std::nullopt;
}

}  // namespace ulp::lowering
