#include "ulp/prune/structured/channel_pruning_recipe.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/base/recipe_file.h"
#include "ulp/prune/structured/unit_width.h"
#include "ulp/quant/recipe.h"

namespace ulp::prune {

namespace {

constexpr int kCutRecipeVersion = 1;

/// Groups that the criterion says nothing of.
std::vector<Obstacle> without_importance(const Groups& groups, const Importance& importance,
                                         Criterion criterion) {
  std::vector<Obstacle> found;
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    if (std::ranges::none_of(importance[g], [](double unit) { return std::isfinite(unit); }))
      found.push_back({groups.groups[g].name(),
                       std::string("the criterion ") + enum_name(criterion) + " says nothing of it"});
  }
  return found;
}

/// Groups with a producer that a pattern names keep all their units; they are added to `whole`.
void keep_skipped(const std::vector<std::string>& skip, const Groups& groups, Importance& importance,
                  std::vector<Obstacle>& whole) {
  for (const std::string& pattern : skip) {
    bool found = false;
    for (size_t g = 0; g < groups.groups.size(); ++g) {
      for (const std::string& producer : groups.groups[g].producers) {
        if (!quant::matches_module(pattern, producer)) continue;
        found = true;
        for (double& unit : importance[g]) unit = std::numeric_limits<double>::infinity();
        whole.push_back({producer, "it is in skip"});
      }
    }
    for (const Obstacle& obstacle : groups.obstacles) found |= quant::matches_module(pattern, obstacle.layer);
    if (!found)
      fail("prune.ChannelPruningRecipe", "expected patterns of layers in skip, got '", pattern,
           "', which matches none");
  }
}

}  // namespace

double ChannelPruningRecipe::share_after(int64_t step) const {
  return step >= steps ? share : std::pow(share, static_cast<double>(step) / static_cast<double>(steps));
}

void ChannelPruningRecipe::visit_fields(FieldVisitor& visit) {
  visit({.name = "criterion", .help = "What makes a channel, head or neuron worth keeping"}, criterion);
  visit(
      {.name = "permutations", .help = "shapley: orders in which units are taken away", .min = 1, .max = 1e6},
      permutations);
  visit({.name = "normalization", .help = "What the scores of a group are divided by"}, normalization);
  visit({.name = "scope", .help = "What units are compared with", .flag = "unit-scope"}, scope);
  visit({.name = "cap",
         .help = "The largest share of a group that goes, with scope global",
         .min = 0,
         .max = 1,
         .below_max = true},
        cap);
  visit({.name = "round_to", .help = "Widths are multiples of this number", .min = 1, .max = 1024}, round_to);
  visit({.name = "measured_widths", .help = "Widths are rounded to those that cost no more on this machine"},
        measured_widths);
  visit({.name = "measure", .help = "Size that is reduced", .flag = ""}, measure);
  visit({.name = "share", .help = "What is left of it", .min = 0, .max = 1, .above_min = true, .flag = ""},
        share);
  visit({.name = "steps",
         .help = "Steps in which the target is reached, with training between them",
         .min = 1,
         .max = 1000},
        steps);
  visit({.name = "regularizer", .help = "Sparsity regularizer of the training before the first cut"},
        regularizer);
  visit(
      {.name = "lambda", .help = "Strength of the regularizer; 0: none. The authors: 1e-5 to 5e-4", .min = 0},
      lambda);
  visit({.name = "growth", .help = "growing: what lambda grows by at each update", .min = 0}, growth);
  visit({.name = "inexact", .help = "Cut through layer norms, too, whose results change"}, inexact);
  visit({.name = "seed", .help = "Seed of random", .flag = "prune-seed"}, seed);
  visit({.name = "skip", .help = "Layers that stay as wide as they are ('*' is any run of characters)"},
        skip);
}

void ChannelPruningRecipe::validate() const {
  check_limits("prune.ChannelPruningRecipe", *this);
}

std::string ChannelPruningRecipe::to_json() const {
  return write_recipe(*this, kCutRecipeVersion);
}

ChannelPruningRecipe ChannelPruningRecipe::from_json(const std::string& text) {
  ChannelPruningRecipe recipe;
  read_recipe(text, recipe, kCutRecipeVersion);
  return recipe;
}

std::map<std::string, int64_t> widths_of(const Groups& groups) {
  std::map<std::string, int64_t> widths;
  for (const Group& group : groups.groups) widths[group.name()] = group.units * unit_width(group);
  return widths;
}

PrunedModel prune_by_recipe(const graph::GraphModule& module, const ChannelPruningRecipe& recipe,
                            double share, const ImportanceInputs& inputs) {
  recipe.validate();
  if (recipe.measured_widths && !inputs.widths)
    fail("prune.narrow", "expected a table of widths for measured_widths, got none");
  PrunedModel result;
  result.groups = groups(module.graph(), {.inexact = recipe.inexact});
  Importance scores = inputs.importance ? inputs.importance(module, result.groups)
                                        : importance(module, result.groups,
                                                     {.criterion = recipe.criterion,
                                                      .normalization = recipe.normalization,
                                                      .seed = recipe.seed,
                                                      .squared_gradients = inputs.squared_gradients});
  result.whole = without_importance(result.groups, scores, recipe.criterion);
  keep_skipped(recipe.skip, result.groups, scores, result.whole);
  UnitSelection options{.scope = recipe.scope, .cap = recipe.cap, .round_to = recipe.round_to};
  if (recipe.measured_widths) options.widen = MeasuredWidths(module.graph(), result.groups, *inputs.widths);
  for (const Group& group : result.groups.groups) {
    const auto full = inputs.full_widths.find(group.name());
    const int64_t now = group.units * unit_width(group);
    options.full_widths.push_back(full == inputs.full_widths.end() ? now : std::max(now, full->second));
  }
  Removals removals;
  if (recipe.measure == Measure::latency) {
    result.latency = select_latency(module, result.groups, scores, options, {.share = share}, inputs.seconds);
    removals = result.latency->removals;
    options.amount = result.latency->chosen.amount;
  } else {
    options.amount = amount_for_target(module.graph(), result.groups, scores, options,
                                       {.measure = recipe.measure, .share = share});
    removals = select_units(result.groups, scores, options);
  }
  result.rounded = rounding_cost(module.graph(), result.groups, scores, options);
  RemovalResult made = remove_units(module, result.groups, removals);
  result.module = std::move(made.module);
  result.kept = std::move(made.kept);
  return result;
}

}  // namespace ulp::prune
