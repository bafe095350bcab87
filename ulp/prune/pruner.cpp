#include "ulp/prune/pruner.h"

#include <ATen/ops/zeros.h>

#include "ulp/base/error.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/scores/score_parts.h"
#include "ulp/prune/scores/sparsegpt.h"
#include "ulp/prune/weight_layout.h"

namespace ulp::prune {
namespace {

using graph::Graph;
using graph::GraphModule;

/// The masks that the parameters have, undefined ones where there is none.
std::vector<at::Tensor> current_masks(const Graph& graph, const Names& names) {
  std::vector<at::Tensor> found;
  for (const std::string& name : names) found.push_back(find_mask(graph, name));
  return found;
}

/// The masks that the scores give, of parameters that have the masks `keep` and had `before` (select.h).
std::vector<at::Tensor> choose(const Graph& graph, const Names& names, const Scores& scores,
                               const std::vector<at::Tensor>& keep, const std::vector<at::Tensor>& before,
                               const Selection& selection) {
  std::vector<LayerScores> layers;
  std::vector<bool> turned;
  for (size_t i = 0; i < names.size(); ++i) {
    turned.push_back(has_inputs_first(graph, names[i]));
    layers.push_back({names[i], outputs_first(scores[i], turned[i]), outputs_first(keep[i], turned[i]),
                      outputs_first(before[i], turned[i])});
  }
  std::vector<at::Tensor> chosen = select(layers, selection);
  for (size_t i = 0; i < names.size(); ++i) chosen[i] = outputs_first(chosen[i], turned[i]);
  return chosen;
}

NewMasks named(const Names& names, const std::vector<at::Tensor>& keep) {
  NewMasks made;
  for (size_t i = 0; i < names.size(); ++i) made.emplace_back(names[i], keep[i]);
  return made;
}

/// Several rounds, each with the scores of what the last one left, on a copy of the graph.
std::vector<at::Tensor> choose_in_rounds(const GraphModule& module, const Names& names, const Recipe& recipe,
                                         Selection selection, const ScoreInputs& inputs) {
  GraphModule copy(module.graph().clone());
  copy.train(module.is_training());
  add_masks(copy, names);
  const std::vector<at::Tensor> before = current_masks(copy.graph(), names);
  std::vector<at::Tensor> keep = before;
  for (int64_t round = 1; round <= recipe.used_rounds(); ++round) {
    selection.way = static_cast<double>(round) / static_cast<double>(recipe.used_rounds());
    const Scores scores = compute_scores(recipe.score, copy, names, inputs);
    keep = choose(copy.graph(), names, scores, keep, before, selection);
    set_masks(copy, named(names, keep));
  }
  return keep;
}

/// Whether the recipe can be for the model and there is all that its scores need.
void check_possible(const GraphModule& module, const Names& names, const Recipe& recipe,
                    const ScoreInputs& inputs) {
  const ScoreSource source = source_of(recipe.score);
  parameters_of(module, names);
  if (source == ScoreSource::loss && !inputs.loss)
    fail("prune.prune", "expected ScoreInputs::loss for ", enum_name(recipe.score), ", got none");
  if (source == ScoreSource::loss && inputs.batches < 1)
    fail("prune.prune", "expected at least one batch for ", enum_name(recipe.score), ", got none");
  if (source == ScoreSource::inputs && inputs.inputs.empty())
    fail("prune.prune", "expected ScoreInputs::inputs for ", enum_name(recipe.score), ", got none");
  if (recipe.score == Score::sparsegpt || recipe.score == Score::soft_movement) return;
  // Amounts, patterns and overrides, by scores that are all alike.
  Scores alike;
  for (const std::string& name : names)
    alike.push_back(at::zeros(module.graph().find_attribute(name)->tensor.sizes(), at::kFloat));
  const std::vector<at::Tensor> keep = current_masks(module.graph(), names);
  choose(module.graph(), names, alike, keep, keep, recipe.selection());
}

/// All but movement.
void draw(GraphModule& module, const Names& names, const Recipe& recipe, const Selection& selection,
          const ScoreInputs& given) {
  if (recipe.score == Score::sparsegpt) {
    prune_sparsegpt(module, names, given.inputs,
                    {.sparsity = selection.amount.fraction, .pattern = recipe.pattern});
    return;
  }
  ScoreInputs inputs = given;
  inputs.seed = static_cast<uint64_t>(recipe.seed);
  if (recipe.used_rounds() > 1) {
    set_masks(module, named(names, choose_in_rounds(module, names, recipe, selection, inputs)));
    return;
  }
  const Scores scores = compute_scores(recipe.score, module, names, inputs);
  const std::vector<at::Tensor> keep = current_masks(module.graph(), names);
  set_masks(module, named(names, choose(module.graph(), names, scores, keep, keep, selection)));
}

PruneReport report_of(const Graph& graph, const Names& names) {
  PruneReport report;
  for (const std::string& name : names) {
    const int64_t elements = graph.find_attribute(name)->tensor.numel();
    const at::Tensor keep = find_mask(graph, name);
    report.layers.push_back({name, keep.defined() ? keep.sum().item<int64_t>() : elements, elements});
  }
  return report;
}

}  // namespace

int64_t PruneReport::kept() const {
  int64_t sum = 0;
  for (const PrunedLayer& layer : layers) sum += layer.kept;
  return sum;
}

int64_t PruneReport::elements() const {
  int64_t sum = 0;
  for (const PrunedLayer& layer : layers) sum += layer.elements;
  return sum;
}

double PruneReport::sparsity() const {
  const int64_t all = elements();
  return all == 0 ? 0 : 1 - static_cast<double>(kept()) / static_cast<double>(all);
}

void check(const GraphModule& module, const Recipe& recipe, const ScoreInputs& inputs) {
  recipe.validate();
  check_possible(module, recipe.parameters_in(module.graph()), recipe, inputs);
}

PruneReport prune(GraphModule& module, const Recipe& recipe, const ScoreInputs& inputs) {
  if (source_of(recipe.score) == ScoreSource::training)
    fail("prune.prune", "expected a score of a model as it is, got ", enum_name(recipe.score),
         ", which a Pruner gathers while the model trains");
  recipe.validate();
  const Names names = recipe.parameters_in(module.graph());
  check_possible(module, names, recipe, inputs);
  std::vector<ReorderedGroup> reordered;
  if (recipe.pattern.reorder) reordered = reorder_for_n_m(module, recipe, inputs);
  draw(module, names, recipe, recipe.selection(), inputs);
  PruneReport report = report_of(module.graph(), names);
  report.reordered = std::move(reordered);
  return report;
}

PruneReport mask_zeros(GraphModule& module) {
  const Names names = Recipe{}.parameters_in(module.graph());
  NewMasks zeros;
  for (const std::string& name : names) {
    if (find_mask(module.graph(), name).defined()) continue;
    const at::Tensor keep = module.graph().find_attribute(name)->tensor.detach().ne(0);
    if (!keep.all().item<bool>()) zeros.emplace_back(name, keep);
  }
  set_masks(module, zeros);
  return report_of(module.graph(), names);
}

Pruner::Pruner(std::shared_ptr<GraphModule> module, Recipe recipe, ScoreInputs inputs)
    : module_(std::move(module)), recipe_(std::move(recipe)), inputs_(std::move(inputs)) {
  if (!module_) fail("prune.Pruner", "expected a module, got null");
  recipe_.validate();
  parameters_ = recipe_.parameters_in(module_->graph());
  check_possible(*module_, parameters_, recipe_, inputs_);
  const bool training = source_of(recipe_.score) == ScoreSource::training;
  if (recipe_.pattern.reorder) reordered_ = reorder_for_n_m(*module_, recipe_, inputs_);
  add_masks(*module_, parameters_, /*dense_gradient=*/training);
  if (!training) return;
  movement_ = std::make_unique<MovementScores>(module_, parameters_,
                                               MovementOptions{.lr = recipe_.movement_lr,
                                                               .soft = recipe_.score == Score::soft_movement,
                                                               .threshold = recipe_.threshold,
                                                               .penalty = recipe_.penalty});
}

bool Pruner::step(int64_t step) {
  Selection selection = recipe_.selection_at(step);
  if (share_) {
    const std::optional<double> share = share_(step);
    if (!share) return false;
    selection.amount = Amount::share(*share, AmountOf::all);
  } else if (!recipe_.schedule.due(step)) {
    return false;
  }
  if (movement_ == nullptr) {
    draw(*module_, parameters_, recipe_, selection, inputs_);
    return true;
  }
  std::vector<at::Tensor> keep;
  if (recipe_.score == Score::soft_movement) {
    keep = movement_->above_threshold();
  } else {  // weights come back where others have moved further: amounts count from the dense model
    const std::vector<at::Tensor> none(parameters_.size());
    keep = choose(module_->graph(), parameters_, movement_->scores(), none, none, selection);
  }
  set_masks(*module_, named(parameters_, keep), /*dense_gradient=*/true);
  return true;
}

void Pruner::after_backward(double scale) {
  if (movement_) movement_->update(scale);
}

void Pruner::set_schedule(std::function<std::optional<double>(int64_t step)> share) {
  const char* obstacle = recipe_.pattern.kind == PatternKind::n_m ? "n_m"
                         : recipe_.score == Score::soft_movement  ? "soft_movement"
                         : recipe_.amount.count                   ? "a count"
                         : !recipe_.overrides.empty()             ? "overrides"
                                                                  : nullptr;
  if (obstacle != nullptr)
    fail("prune.Pruner", "expected a recipe whose amount is a share, got one of ", obstacle);
  share_ = std::move(share);
}

PruneReport Pruner::report() const {
  PruneReport report = report_of(module_->graph(), parameters_);
  report.reordered = reordered_;
  return report;
}

}  // namespace ulp::prune
