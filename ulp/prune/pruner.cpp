#include "ulp/prune/pruner.h"

#include <cmath>

#include "ulp/base/error.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/scores/score_parts.h"
#include "ulp/prune/scores/sparsegpt.h"

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

std::vector<at::Tensor> choose(const Names& names, const Scores& scores, const std::vector<at::Tensor>& keep,
                               const Selection& selection) {
  std::vector<LayerScores> layers;
  for (size_t i = 0; i < names.size(); ++i) layers.push_back({names[i], scores[i], keep[i]});
  return select(layers, selection);
}

NewMasks named(const Names& names, const std::vector<at::Tensor>& keep) {
  NewMasks made;
  for (size_t i = 0; i < names.size(); ++i) made.emplace_back(names[i], keep[i]);
  return made;
}

/// The share of all weights that is kept.
double density(const Graph& graph, const Names& names) {
  double kept = 0, all = 0;
  for (const std::string& name : names) {
    const at::Tensor keep = find_mask(graph, name);
    const auto elements = static_cast<double>(graph.find_attribute(name)->tensor.numel());
    kept += keep.defined() ? keep.sum().item<double>() : elements;
    all += elements;
  }
  return all == 0 ? 1 : kept / all;
}

/// The density that the amount leaves.
double density_after(const Graph& graph, const Names& names, const Amount& amount, double before) {
  if (amount.count) {
    double all = 0;
    for (const std::string& name : names)
      all += static_cast<double>(graph.find_attribute(name)->tensor.numel());
    const double share = static_cast<double>(*amount.count) / all;
    return amount.of == AmountOf::all ? 1 - share : before - share;
  }
  return amount.of == AmountOf::all ? 1 - amount.fraction : before * (1 - amount.fraction);
}

/// Several rounds, each with the scores of what the last one left, on a copy of the graph.
std::vector<at::Tensor> choose_in_rounds(const GraphModule& module, const Names& names, const Recipe& recipe,
                                         const Amount& amount, const ScoreInputs& inputs) {
  GraphModule copy(module.graph().clone());
  copy.train(module.is_training());
  const double before = density(copy.graph(), names);
  const double after = density_after(copy.graph(), names, amount, before);
  if (!(after >= 0)) fail("prune.prune", "expected an amount of at most what is left, got more");
  const int64_t rounds = recipe.used_rounds();
  std::vector<at::Tensor> keep = current_masks(copy.graph(), names);
  for (int64_t round = 1; round <= rounds; ++round) {
    const double way = static_cast<double>(round) / static_cast<double>(rounds);
    const double left = round == rounds || before == 0 ? after : before * std::pow(after / before, way);
    const Scores scores = compute_scores(recipe.score, copy, names, inputs);
    keep = choose(names, scores, keep, recipe.selection(Amount::share(1 - left, AmountOf::all)));
    set_masks(copy, named(names, keep));
  }
  return keep;
}

/// The masks that the parameters have, and ones for those without.
NewMasks first_masks(const Graph& graph, const Names& names) {
  NewMasks made;
  for (const std::string& name : names) {
    at::Tensor keep = find_mask(graph, name);
    if (!keep.defined()) keep = at::ones(graph.find_attribute(name)->tensor.sizes(), at::kBool);
    made.emplace_back(name, keep);
  }
  return made;
}

void check_available(const GraphModule& module, const Names& names, const Recipe& recipe,
                     const ScoreInputs& inputs) {
  const ScoreSource source = source_of(recipe.score);
  parameters_of(module, names);
  if (source == ScoreSource::loss && !inputs.loss)
    fail("prune.prune", "expected ScoreInputs::loss for ", word_of(recipe.score), ", got none");
  if (source == ScoreSource::inputs && inputs.inputs.empty())
    fail("prune.prune", "expected ScoreInputs::inputs for ", word_of(recipe.score), ", got none");
}

/// All but movement.
void draw(GraphModule& module, const Names& names, const Recipe& recipe, const Amount& amount,
          const ScoreInputs& given) {
  if (recipe.score == Score::sparsegpt) {
    prune_sparsegpt(module, names, given.inputs, {.sparsity = amount.fraction, .pattern = recipe.pattern});
    return;
  }
  ScoreInputs inputs = given;
  inputs.seed = static_cast<uint64_t>(recipe.seed);
  if (recipe.used_rounds() > 1) {
    set_masks(module, named(names, choose_in_rounds(module, names, recipe, amount, inputs)));
    return;
  }
  const Scores scores = compute_scores(recipe.score, module, names, inputs);
  set_masks(module, named(names, choose(names, scores, current_masks(module.graph(), names),
                                        recipe.selection(amount))));
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

PruneReport prune(GraphModule& module, const Recipe& recipe, const ScoreInputs& inputs) {
  recipe.validate();
  if (source_of(recipe.score) == ScoreSource::training)
    fail("prune.prune", "expected a score of a model as it is, got ", word_of(recipe.score),
         ", which a Pruner gathers while the model trains");
  const Names names = recipe.parameters_in(module.graph());
  check_available(module, names, recipe, inputs);
  draw(module, names, recipe, recipe.amount, inputs);
  return report_of(module.graph(), names);
}

Pruner::Pruner(std::shared_ptr<GraphModule> module, Recipe recipe, ScoreInputs inputs)
    : module_(std::move(module)), recipe_(std::move(recipe)), inputs_(std::move(inputs)) {
  if (!module_) fail("prune.Pruner", "expected a module, got null");
  recipe_.validate();
  parameters_ = recipe_.parameters_in(module_->graph());
  check_available(*module_, parameters_, recipe_, inputs_);
  const bool training = source_of(recipe_.score) == ScoreSource::training;
  set_masks(*module_, first_masks(module_->graph(), parameters_), /*dense_gradient=*/training);
  if (!training) return;
  movement_ = std::make_unique<MovementScores>(module_, parameters_,
                                               MovementOptions{.lr = recipe_.movement_lr,
                                                               .soft = recipe_.score == Score::soft_movement,
                                                               .threshold = recipe_.threshold,
                                                               .penalty = recipe_.penalty});
}

bool Pruner::step(int64_t step) {
  Amount amount = recipe_.schedule.amount_at(step, recipe_.amount);
  if (share_) {
    const std::optional<double> share = share_(step);
    if (!share) return false;
    amount = Amount::share(*share, AmountOf::all);
  } else if (!recipe_.schedule.due(step)) {
    return false;
  }
  if (movement_ == nullptr) {
    draw(*module_, parameters_, recipe_, amount, inputs_);
    return true;
  }
  std::vector<at::Tensor> keep;
  if (recipe_.score == Score::soft_movement) {
    keep = movement_->above_threshold();
  } else {
    // Weights come back where others have moved further: amounts count from the dense model.
    Amount of_all = amount;
    if (amount.of == AmountOf::remaining) {
      const double left = density(module_->graph(), parameters_);
      of_all = Amount::share(1 - density_after(module_->graph(), parameters_, amount, left), AmountOf::all);
    }
    keep = choose(parameters_, movement_->scores(), std::vector<at::Tensor>(parameters_.size()),
                  recipe_.selection(of_all));
  }
  set_masks(*module_, named(parameters_, keep), /*dense_gradient=*/true);
  return true;
}

void Pruner::after_backward() {
  if (movement_) movement_->update();
}

void Pruner::set_schedule(std::function<std::optional<double>(int64_t step)> share) {
  const char* obstacle = recipe_.pattern.kind == PatternKind::n_m ? "n_m"
                         : recipe_.score == Score::soft_movement  ? "soft_movement"
                                                                  : nullptr;
  if (obstacle != nullptr)
    fail("prune.Pruner", "expected a recipe whose amount is a share, got one of ", obstacle);
  share_ = std::move(share);
}

PruneReport Pruner::report() const {
  return report_of(module_->graph(), parameters_);
}

}  // namespace ulp::prune
