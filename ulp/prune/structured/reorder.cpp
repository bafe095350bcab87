#include "ulp/prune/structured/reorder.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/permute_inputs.h"
#include "ulp/prune/weight_layout.h"

namespace ulp::prune {

namespace {

constexpr const char* kReorderUnitsWhere = "prune.reorder_units";

void expect_order(const Group& group, std::vector<int64_t> order) {
  std::ranges::sort(order);
  bool each_once = static_cast<int64_t>(order.size()) == group.units;
  for (size_t k = 0; each_once && k < order.size(); ++k) each_once = order[k] == static_cast<int64_t>(k);
  if (!each_once)
    fail(kReorderUnitsWhere, "expected each of the ", group.units, " units of '", group.name(),
         "' once, got another order");
}

/// Where each index of the member's dimension comes from.
at::Tensor sources(const Member& member, int64_t size, const std::vector<int64_t>& order) {
  std::vector<int64_t> from(static_cast<size_t>(size));
  std::iota(from.begin(), from.end(), 0);
  for (size_t k = 0; k < order.size(); ++k) {
    const std::vector<int64_t>&to = member.indices[k], &of = member.indices[static_cast<size_t>(order[k])];
    for (size_t i = 0; i < to.size(); ++i) from[static_cast<size_t>(to[i])] = of[i];
  }
  return torch::tensor(from, torch::kLong);
}

void move_along(at::Tensor tensor, int64_t dim, const at::Tensor& from) {
  tensor.copy_(tensor.index_select(dim, from.to(tensor.device())));
}

/// Whether a group's order decides on the layer's inputs: all of them, or a run of whole neighbourhoods.
bool orders_inputs(const Member& member, const std::vector<std::string>& pruned, int64_t inputs_dim,
                   int64_t m) {
  if (member.dim != inputs_dim || member.role != Role::column ||
      std::ranges::find(pruned, member.tensor) == pruned.end())
    return false;
  const int64_t first = member.indices.front().front(), units = static_cast<int64_t>(member.indices.size());
  if (first % m != 0 || units % m != 0) return false;
  for (int64_t k = 0; k < units; ++k) {
    const std::vector<int64_t>& of_unit = member.indices[static_cast<size_t>(k)];
    if (of_unit.size() != 1 || of_unit[0] != first + k) return false;
  }
  return true;
}

/// [outputs and kernel positions, inputs]
at::Tensor as_rows(const at::Tensor& scores, int64_t first, int64_t inputs) {
  return scores.narrow(1, first, inputs).movedim(1, -1).reshape({-1, inputs});
}

}  // namespace

bool can_reorder(const Group& group) {
  for (const Member& member : group.members) {
    const std::vector<int64_t>& pattern = member.indices.front();
    for (const std::vector<int64_t>& unit : member.indices) {
      if (unit.size() != pattern.size()) return false;
      for (size_t i = 0; i < unit.size(); ++i) {
        if (unit[i] - unit[0] != pattern[i] - pattern[0]) return false;
      }
    }
  }
  return true;
}

void reorder_units(graph::GraphModule& module, const Group& group, const std::vector<int64_t>& order) {
  expect_order(group, order);
  if (!can_reorder(group))
    fail(kReorderUnitsWhere, "expected units that are alike, got those of '", group.name(),
         "', which are not");
  for (const Member& member : group.members) {
    const graph::Attribute* attribute = module.graph().find_attribute(member.tensor);
    if (!attribute)
      fail(kReorderUnitsWhere, "expected a tensor '", member.tensor, "' in the graph, got none");
    if (attribute->kind == graph::Attribute::Kind::parameter &&
        find_mask(module.graph(), member.tensor).defined())
      fail(kReorderUnitsWhere, "expected '", member.tensor, "' without a mask, got one that has");
  }
  const torch::NoGradGuard no_grad;
  std::map<std::pair<const void*, int64_t>, std::string>
      moved;  // a tensor that several names have moves once
  for (const Member& member : group.members) {
    const at::Tensor tensor = module.graph().find_attribute(member.tensor)->tensor;
    if (moved.try_emplace({tensor.const_data_ptr(), member.dim}, member.tensor).first->second !=
        member.tensor)
      continue;
    const at::Tensor from = sources(member, tensor.size(member.dim), order);
    move_along(tensor.detach(), member.dim, from);
    if (tensor.is_leaf() && tensor.grad().defined()) move_along(tensor.grad().detach(), member.dim, from);
  }
}

std::vector<ReorderedGroup> reorder_for_n_m(graph::GraphModule& module, const Recipe& recipe,
                                            const ScoreInputs& inputs) {
  if (recipe.pattern.kind != PatternKind::n_m || source_of(recipe.score) == ScoreSource::training)
    fail("prune.reorder_for_n_m",
         "expected a recipe of n_m whose scores are there before training, got one of ",
         enum_name(recipe.pattern.kind), " and ", enum_name(recipe.score));
  const std::vector<std::string> pruned = recipe.parameters_in(module.graph());
  // sparsegpt has scores of its own for each row as it goes: wanda's are the nearest.
  const Score score = recipe.score == Score::sparsegpt ? Score::wanda : recipe.score;
  const std::vector<at::Tensor> scores = compute_scores(score, module, pruned, inputs);
  std::vector<ReorderedGroup> found;
  for (const Group& group : groups(module.graph()).groups) {
    if (!can_reorder(group)) continue;
    std::vector<at::Tensor> rows;
    for (const Member& member : group.members) {
      const bool turned = has_inputs_first(module.graph(), member.tensor);
      if (!orders_inputs(member, pruned, turned ? 0 : 1, recipe.pattern.m)) continue;
      const auto at = static_cast<size_t>(std::ranges::find(pruned, member.tensor) - pruned.begin());
      rows.push_back(as_rows(outputs_first(scores[at], turned), member.indices[0][0], group.units));
    }
    if (rows.empty()) continue;
    const at::Tensor all = torch::cat(rows).to(torch::kDouble);
    const InputOrder order = n_m_input_order(all, recipe.pattern.n, recipe.pattern.m);
    reorder_units(module, group, order.inputs);
    const double sum = all.sum().item<double>();
    found.push_back({group.name(), sum > 0 ? order.kept_before / sum : 1, sum > 0 ? order.kept / sum : 1});
  }
  return found;
}

}  // namespace ulp::prune
