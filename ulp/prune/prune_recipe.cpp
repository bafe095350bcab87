#include "ulp/prune/prune_recipe.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/recipe/recipe_file.h"

namespace ulp::prune {
namespace {

constexpr const char* kWhere = "prune.Recipe";
constexpr int kVersion = 1;
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

bool any_matches(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const std::string& p) { return quant::matches_module(p, name); });
}

void expect_matches(const char* field, const std::vector<std::string>& patterns,
                    const std::vector<std::string>& names) {
  for (const std::string& pattern : patterns) {
    const auto matches = [&](const std::string& name) { return quant::matches_module(pattern, name); };
    if (std::ranges::none_of(names, matches))
      fail(kWhere, "expected ", field, " to name weights of the model, got '", pattern,
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
  expect_matches("parameters", parameters, names);
  expect_matches("skip", skip, names);
  std::erase_if(names, [&](const std::string& name) {
    return (!parameters.empty() && !any_matches(parameters, name)) || any_matches(skip, name);
  });
  if (names.empty())
    fail(kWhere, "expected a model with weights that the recipe prunes, got none of two dimensions or more");
  return names;
}

Selection Recipe::selection(const Amount& how_much) const {
  return {.pattern = pattern, .scope = scope, .amount = how_much, .floor = floor, .overrides = overrides};
}

void Recipe::visit_fields(FieldVisitor& visit) {
  visit({"score", "What makes a weight worth keeping"}, score);
  visit({"pattern", "What is pruned together"}, pattern);
  visit({"scope", "Among which weights the least are found"}, scope);
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
  check_limits(kWhere, *this);
  pattern.validate();
  schedule.validate(amount);
  const auto conflict = [](const auto&... parts) { fail(kWhere, parts...); };
  if (score == Score::sparsegpt) {
    if (pattern.kind != PatternKind::free && pattern.kind != PatternKind::n_m)
      conflict("expected the pattern free or n_m for sparsegpt, got ", word_of(pattern.kind));
    if (amount.count || amount.of != AmountOf::all || !overrides.empty() || used_rounds() != 1)
      conflict("expected an amount that is a fraction of all, without overrides and rounds, for sparsegpt");
  }
  if (source_of(score) == ScoreSource::training && used_rounds() != 1)
    conflict("expected one round for ", word_of(score), ", got ", used_rounds());
  if (score == Score::soft_movement && !overrides.empty())
    conflict("expected no overrides for soft_movement, whose threshold is its amount");
  if (used_rounds() > 1 && pattern.kind == PatternKind::n_m)
    conflict("expected one round for n_m, got ", used_rounds());
  if (used_rounds() > 1 && !overrides.empty())
    conflict("expected no overrides with several rounds, got ", overrides.size());
  if (schedule.kind == ScheduleKind::cubic && pattern.kind == PatternKind::n_m)
    conflict("expected another schedule than cubic for n_m");
}

std::string Recipe::to_json() const {
  return quant::write_recipe(*this, kVersion);
}

Recipe Recipe::from_json(const std::string& text) {
  Recipe recipe;
  quant::read_recipe(text, recipe, kVersion);
  return recipe;
}

}  // namespace ulp::prune
