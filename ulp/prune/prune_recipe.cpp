#include "ulp/prune/prune_recipe.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/recipe_file.h"
#include "ulp/quant/recipe.h"

namespace ulp::prune {
namespace {

constexpr const char* kRecipeWhere = "prune.Recipe";
constexpr int kPruneRecipeVersion = 1;
constexpr int64_t kSynFlowRounds = 100;

bool is_read(const graph::Graph& graph, const at::Tensor& tensor) {
  return std::ranges::any_of(graph.nodes(), [&](const auto& node) {
    return node->kind() == graph::Node::Kind::attribute &&
           graph.attribute_tensor(node->output()).is_same(tensor) && !graph.users(node->output()).empty();
  });
}

/// The parameters that can be pruned, tied ones under their first name.
std::vector<std::string> prunable(const graph::Graph& graph) {
  std::vector<std::string> names;
  std::vector<at::Tensor> seen;
  for (const auto& [name, attribute] : graph.attributes()) {
    const at::Tensor& tensor = attribute.tensor;
    const auto same = [&](const at::Tensor& other) { return other.is_same(tensor); };
    if (attribute.kind != graph::Attribute::Kind::parameter || tensor.dim() < 2 ||
        !tensor.is_floating_point() || std::ranges::any_of(seen, same) || !is_read(graph, tensor))
      continue;
    seen.push_back(tensor);
    names.push_back(name);
  }
  return names;
}

/// Whether the pattern is for the parameter, by one of its names.
bool matches(const graph::Graph& graph, const std::string& pattern, const std::string& parameter) {
  const at::Tensor& tensor = graph.find_attribute(parameter)->tensor;
  return std::ranges::any_of(graph.attributes(), [&](const auto& one) {
    return one.second.tensor.is_same(tensor) && quant::matches_module(pattern, one.first);
  });
}

bool any_matches(const graph::Graph& graph, const std::vector<std::string>& patterns,
                 const std::string& name) {
  return std::ranges::any_of(patterns, [&](const std::string& p) { return matches(graph, p, name); });
}

void expect_matches(const char* field, const graph::Graph& graph, const std::vector<std::string>& patterns,
                    const std::vector<std::string>& names) {
  for (const std::string& pattern : patterns) {
    if (std::ranges::none_of(names, [&](const std::string& name) { return matches(graph, pattern, name); }))
      fail(kRecipeWhere, "expected ", field, " to name weights of the model, got '", pattern,
           "', which matches none");
  }
}

}  // namespace

int64_t Recipe::used_rounds() const {
  if (rounds != 0) return rounds;
  return score == Score::synflow ? kSynFlowRounds : 1;
}

std::vector<std::string> Recipe::parameters_in(const graph::Graph& graph) const {
  std::vector<std::string> names = prunable(graph);
  expect_matches("parameters", graph, parameters, names);
  expect_matches("skip", graph, skip, names);
  std::erase_if(names, [&](const std::string& name) {
    return (!parameters.empty() && !any_matches(graph, parameters, name)) || any_matches(graph, skip, name);
  });
  if (names.empty())
    fail(kRecipeWhere,
         "expected a model with weights that the recipe prunes, got none of two dimensions or more");
  return names;
}

Selection Recipe::selection() const {
  return {.pattern = pattern, .scope = scope, .amount = amount, .floor = floor, .overrides = overrides};
}

Selection Recipe::selection_at(int64_t step) const {
  Selection result = selection();
  result.amount = schedule.amount_at(step, amount);
  for (NamedAmount& one : result.overrides) one.amount = schedule.amount_at(step, one.amount);
  return result;
}

void Recipe::visit_fields(FieldVisitor& visit) {
  visit({"score", "What makes a weight worth keeping"}, score);
  visit({"pattern", "What is pruned together"}, pattern);
  visit({"scope", "Ranking scope: what the score of a weight is compared with"}, scope);
  visit({"amount", "How much is pruned"}, amount);
  visit({"floor", "global: least share of each layer that is kept", 0, 1}, floor);
  visit({"overrides", "Amounts of some parameters, which are pruned by themselves"}, overrides,
        NamedAmount{});
  visit({"parameters", "Parameters that may be pruned, by names or modules; '*' is any run of characters"},
        parameters);
  visit({"skip", "Parameters that stay dense"}, skip);
  visit({"schedule", "When weights are pruned"}, schedule);
  visit({.name = "rounds",
         .help = "Rounds with new scores that reach one amount; 0: 100 for synflow, else 1",
         .min = 0,
         .max = 1e6,
         .flag = "score-rounds"},
        rounds);
  visit({.name = "seed", .help = "random: which numbers", .min = 0, .flag = "prune-seed"}, seed);
  visit({"movement_lr", "movement: learning rate of the scores", 0, std::numeric_limits<double>::infinity(),
         true},
        movement_lr);
  visit({"threshold", "soft_movement: what a score's sigmoid must exceed", 0, 1, false, true}, threshold);
  visit({"penalty", "soft_movement: times the mean of all sigmoids, added to the loss", 0}, penalty);
}

void Recipe::validate() const {
  check_limits(kRecipeWhere, *this);
  pattern.validate();
  schedule.validate(amount);
  for (const NamedAmount& one : overrides) schedule.validate(one.amount);
  const auto conflict = [](const auto&... parts) { fail(kRecipeWhere, parts...); };
  if (score == Score::sparsegpt) {
    if (pattern.kind != PatternKind::free && pattern.kind != PatternKind::n_m)
      conflict("expected the pattern free or n_m for sparsegpt, got ", enum_name(pattern.kind));
    if (amount.count || amount.of != AmountOf::all || !overrides.empty() || used_rounds() != 1)
      conflict("expected an amount that is a fraction of all, without overrides and rounds, for sparsegpt");
  }
  if (source_of(score) == ScoreSource::training && used_rounds() != 1)
    conflict("expected one round for ", enum_name(score), ", got ", used_rounds());
  const bool begins_dense =
      score == Score::movement && schedule.kind == ScheduleKind::cubic && schedule.initial == 0;
  if (source_of(score) == ScoreSource::training && schedule.begin == 0 && !begins_dense) {
    conflict("expected a schedule that begins after step 0 for ", enum_name(score),
             ", which has no scores before the first step");
  }
  if (score == Score::soft_movement &&
      (!overrides.empty() || pattern.kind != PatternKind::free || floor != 0))
    conflict("expected no overrides, patterns and floors for soft_movement, whose threshold is its amount");
  const auto of_all = [](const Amount& one) { return !one.count && one.of == AmountOf::all; };
  if (score == Score::movement && pattern.kind != PatternKind::n_m &&
      !(of_all(amount) && std::ranges::all_of(overrides, of_all, &NamedAmount::amount)))
    conflict("expected amounts that are fractions of all for movement, whose weights may come back");
  if (source_of(score) == ScoreSource::training && pattern.reorder)
    conflict("expected no reorder for ", enum_name(score), ", whose scores come too late");
  if (used_rounds() > 1 && pattern.kind == PatternKind::n_m)
    conflict("expected one round for n_m, got ", used_rounds());
  if (used_rounds() > 1 && !overrides.empty())
    conflict("expected no overrides with several rounds, got ", overrides.size());
  if (pattern.kind == PatternKind::n_m && !overrides.empty())
    conflict(
        "expected no overrides for n_m, which keeps n of m everywhere; skip names layers that stay dense");
  if (scope == Scope::row && pattern.kind != PatternKind::free && pattern.kind != PatternKind::n_m)
    conflict("expected the pattern free for the scope row, got ", enum_name(pattern.kind));
  if (scope == Scope::global && of_all(amount) && amount.fraction > 1 - floor)
    conflict("expected a floor of at most ", 1 - amount.fraction, ", which the amount leaves, got ", floor);
  if (schedule.kind == ScheduleKind::cubic && pattern.kind == PatternKind::n_m)
    conflict("expected another schedule than cubic for n_m");
}

std::string Recipe::to_json() const {
  return write_recipe(*this, kPruneRecipeVersion);
}

Recipe Recipe::from_json(const std::string& text) {
  Recipe recipe;
  read_recipe(text, recipe, kPruneRecipeVersion);
  return recipe;
}

}  // namespace ulp::prune
