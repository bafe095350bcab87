#include "ulp/app/prune.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "ulp/app/narrow_source.h"
#include "ulp/app/plan_figures.h"
#include "ulp/app/prunes_while_training.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/pruner.h"

namespace ulp::app {

namespace {

constexpr int64_t kScoreBatch = 64;

/// A copy with tensors of its own.
std::shared_ptr<graph::GraphModule> copy_of(const graph::GraphModule& model) {
  const at::NoGradGuard no_grad;
  const std::shared_ptr<graph::Graph> copy = model.graph().clone();
  std::unordered_map<const void*, at::Tensor> made;  // tied parameters stay tied
  for (const auto& [name, attribute] : model.graph().attributes()) {
    at::Tensor& tensor = made[attribute.tensor.unsafeGetTensorImpl()];
    if (!tensor.defined())
      tensor = attribute.tensor.detach().clone().set_requires_grad(attribute.tensor.requires_grad());
    copy->set_attribute(name, {attribute.kind, tensor});
  }
  auto module = std::make_shared<graph::GraphModule>(copy);
  module->train(model.is_training());
  return module;
}

/// Elements of the parameters, shared ones once.
std::pair<int64_t, int64_t> count_elements(const graph::GraphModule& model) {
  int64_t all = 0, nonzero = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    all += parameter.numel();
    nonzero += parameter.count_nonzero().item<int64_t>();
  }
  return {all, nonzero};
}

class Runner {
 public:
  explicit Runner(const PruneRequest& request) : request_(request) {
    run_.outcome.model = request.model;
    run_.outcome.method = request.recipe.cuts() ? "channels" : "weights";
  }

  PruneRun run() {
    request_.recipe.validate();
    if (request_.finetune && !request_.train_batches)
      fail("app.run_prune", "expected data to train on, got none");
    dense_ = copy_of(*request_.captured);
    dense_->eval();
    check();
    add_state("dense", *dense_);
    for (const double kept : request_.sweep) add_point(kept);
    current_ = copy_of(*dense_);
    request_.recipe.cuts() ? cut() : mask();
    run_.model = current_;
    if (run_.outcome.interrupted) return std::move(run_);
    list_parameters();
    if (request_.latency) measure_latency();
    return std::move(run_);
  }

 private:
  void show(Stage stage) const {
    if (request_.progress) request_.progress(stage);
  }

  /// Finds what is wrong with the recipe before anything is measured.
  void check() const {
    if (const auto* recipe = std::get_if<prune::Recipe>(&request_.recipe.recipe)) {
      recipe->parameters_in(dense_->graph());
      return;
    }
    prune::CutRecipe recipe = std::get<prune::CutRecipe>(request_.recipe.recipe);
    using prune::Criterion;
    if (recipe.criterion == Criterion::taylor || recipe.criterion == Criterion::hessian)
      recipe.criterion = Criterion::l2;  // without gradients
    recipe.measured_widths = false;
    if (recipe.measure == prune::Measure::latency) {  // whose target needs a clock
      recipe.measure = prune::Measure::macs;
      recipe.share = 1;
    }
    prune::narrow(*dense_, recipe, recipe.share);
  }

  // Data.

  std::unique_ptr<train::BatchStream> stream(int64_t batch) const {
    if (!request_.train_batches) fail("app.run_prune", "expected data to compute the scores with, got none");
    return request_.train_batches({.batch = batch, .shuffle = true, .drop_last = true, .seed = 0});
  }

  /// The batches that scores are computed with.
  std::vector<train::TaskBatch> score_batches() const {
    std::vector<train::TaskBatch> batches;
    const auto source = stream(std::min(kScoreBatch, request_.samples));
    for (int64_t seen = 0; seen < request_.samples; seen += kScoreBatch) {
      std::optional<train::TaskBatch> batch = source->next();
      if (!batch) break;
      batches.push_back(*std::move(batch));
    }
    return batches;
  }

  prune::ScoreInputs score_inputs(const prune::Recipe& recipe) const {
    const prune::ScoreSource source = prune::source_of(recipe.score);
    if (source != prune::ScoreSource::loss && source != prune::ScoreSource::inputs) return {};
    auto batches = std::make_shared<std::vector<train::TaskBatch>>(score_batches());
    prune::ScoreInputs inputs;
    for (const train::TaskBatch& batch : *batches) inputs.inputs.push_back({batch.inputs});
    inputs.batches = static_cast<int64_t>(batches->size());
    inputs.loss = [batches](graph::GraphModule& module, int64_t i) {
      const train::TaskBatch& batch = batches->at(static_cast<size_t>(i));
      return train::cross_entropy(module.forward(batch.inputs), batch);
    };
    return inputs;
  }

  /// Of a recipe of channels.
  NarrowSource& source() {
    if (!source_) {
      source_.emplace(std::get<prune::CutRecipe>(request_.recipe.recipe),
                      NarrowSource::Setup{.dense = dense_.get(),
                                          .width_table = request_.width_table,
                                          .threads = request_.threads,
                                          .batches = [this] { return score_batches(); },
                                          .progress = request_.progress});
      whole_ = source_->measure(*dense_);
    }
    return *source_;
  }

  // Pruning.

  void mask() {
    const auto& recipe = std::get<prune::Recipe>(request_.recipe.recipe);
    if (!request_.finetune) {
      prune::prune(*current_, recipe, score_inputs(recipe));
      current_ = prune::bake(*current_);
      add_state("pruned", *current_);
      return;
    }
    prune::Pruner pruner(current_, recipe, score_inputs(recipe));
    if (recipe.schedule.last() == 0) {  // what it is before training
      const auto trial = copy_of(*dense_);
      prune::prune(*trial, recipe, score_inputs(recipe));
      add_state("pruned", *prune::bake(*trial));
    }
    train(&pruner);
    current_ = prune::bake(*current_);
    if (!run_.outcome.interrupted) add_state("trained on", *current_);
  }

  void cut() {
    const auto& recipe = std::get<prune::CutRecipe>(request_.recipe.recipe);
    NarrowSource& source = this->source();
    for (int64_t step = 1; step <= recipe.steps && !run_.outcome.interrupted; ++step) {
      const double now = step == 1 ? whole_ : source.measure(*current_);
      prune::NarrowerModel narrower =
          source.narrow(*current_, std::min(1.0, whole_ * recipe.share_after(step) / now));
      std::ranges::move(source.notes(narrower), std::back_inserter(run_.outcome.notes));
      current_ = std::move(narrower.module);
      current_->zero_grad();
      if (step == 1) add_obstacles(narrower.groups);
      const std::string suffix = recipe.steps == 1 ? "" : " " + std::to_string(step);
      if (step == recipe.steps || request_.finetune) add_state("pruned" + suffix, *current_);
      if (!request_.finetune) continue;
      train(nullptr);
      if (!run_.outcome.interrupted) add_state("trained on" + suffix, *current_);
    }
  }

  void train(prune::Pruner* pruner) {
    const train::TrainOptions& options = request_.recipe.training.options;
    train::Trainer trainer(
        {.model = current_,
         .forward = [this](const train::TaskBatch& batch) { return current_->forward(batch.inputs); },
         .batches = request_.train_batches(
             train::StreamOptions::training(options.batch, options.seed, options.augment))},
        options);
    std::optional<PrunesWhileTraining> prunes;
    if (pruner != nullptr) trainer.observe(&prunes.emplace(*pruner, trainer));
    try {
      train::run_to_end(trainer, {}, [&](const train::StepInfo& info) {
        show({"training on", "step", info.step + 1, trainer.total_steps()});
      });
    } catch (const Interrupted&) {
      run_.outcome.interrupted = true;
    }
    current_->eval();
  }

  void add_obstacles(const prune::Groups& groups) {
    for (const prune::Obstacle& obstacle : groups.obstacles)
      run_.outcome.reasons.push_back("not pruned: " + obstacle.layer + ": " + obstacle.reason);
    for (const prune::Group& group : groups.groups) {
      for (const std::string& note : group.notes) run_.outcome.reasons.push_back(group.name() + ": " + note);
    }
  }

  // Figures.

  std::optional<train::Accuracy> accuracy(const std::string& title, const runtime::Plan& plan) const {
    if (!request_.test_batches) return std::nullopt;
    const std::unique_ptr<train::BatchStream> batches = request_.test_batches();
    return accuracy_of(plan, *batches, request_.threads, [&](int64_t done) {
      show({title, request_.unit, done, batches->samples()});
    });
  }

  void add_state(const std::string& name, const graph::GraphModule& model) {
    const auto [all, nonzero] = count_elements(model);
    plans_.push_back(lower(*copy_of(model)));
    run_.outcome.states.push_back({.name = name,
                                   .accuracy = accuracy("evaluate " + name, plans_.back()),
                                   .parameters = all,
                                   .nonzero = nonzero,
                                   .macs = prune::size_of(model.graph()).macs,
                                   .bytes = weight_bytes(plans_.back())});
  }

  void add_point(double kept) {
    const std::shared_ptr<graph::GraphModule> trial = copy_of(*dense_);
    SweepPoint point{.asked = kept};
    std::shared_ptr<graph::GraphModule> pruned;
    if (request_.recipe.cuts()) {
      const prune::NarrowerModel narrower = source().narrow(*trial, kept);
      pruned = narrower.module;
      point.kept =
          (narrower.latency ? narrower.latency->chosen.measured : source().measure(*pruned)) / whole_;
    } else {
      prune::Recipe recipe = std::get<prune::Recipe>(request_.recipe.recipe);
      recipe.amount = prune::Amount::share(1 - kept, prune::AmountOf::all);
      recipe.overrides.clear();
      recipe.schedule = {};
      point.kept = 1 - prune::prune(*trial, recipe, score_inputs(recipe)).sparsity();
      pruned = prune::bake(*trial);
    }
    point.accuracy = accuracy("sweep", lower(*pruned));
    run_.outcome.sweep.push_back(point);
  }

  void list_parameters() {
    const graph::Graph& before = dense_->graph();
    for (const auto& [name, attribute] : before.attributes()) {
      if (attribute.kind != graph::Attribute::Kind::parameter || attribute.tensor.dim() < 2) continue;
      const graph::Attribute* now = current_->graph().find_attribute(name);
      if (now == nullptr) continue;
      run_.outcome.parameters.push_back(
          {name, now->tensor.count_nonzero().item<int64_t>(), attribute.tensor.numel()});
    }
  }

  /// The first state and the last, in turn.
  void measure_latency() {
    std::vector<PrunedState>& states = run_.outcome.states;
    const auto last = states.size() - 1;
    runtime::Engine dense(plans_.front(), {.threads = request_.threads}),
        pruned(plans_.back(), {.threads = request_.threads});
    const measure::MeasureOptions options{
        .rounds = 7, .round_seconds = 0.1, .progress = [&](int64_t done, int64_t total) {
          show({"measure latency", "round", done, total});
        }};
    for (const int64_t batch : {1, 16}) {
      torch::manual_seed(0);
      const at::Tensor input = random_input(dense.inputs().front(), batch);
      const auto candidate = [&](const char* name, runtime::Engine& engine) {
        const at::Tensor output = torch::empty(
            {static_cast<int64_t>(runtime::byte_count(engine.outputs().front(), batch))}, torch::kByte);
        return measure::Candidate{name, [&engine, input, output](int64_t items) {
                                    const void* in = input.const_data_ptr();
                                    void* out = output.mutable_data_ptr();
                                    engine.run(items, {&in, 1}, {&out, 1});
                                  }};
      };
      const std::vector<measure::Timing> times =
          measure::time_in_turns({candidate("dense", dense), candidate("pruned", pruned)}, batch, options);
      (batch == 1 ? states[0].one : states[0].sixteen) = times[0];
      (batch == 1 ? states[last].one : states[last].sixteen) = times[1];
    }
  }

  const PruneRequest& request_;
  PruneRun run_;
  std::shared_ptr<graph::GraphModule> dense_, current_;
  std::optional<NarrowSource> source_;
  double whole_ = 0;                  ///< what the recipe measures, of the dense network
  std::vector<runtime::Plan> plans_;  ///< of the states
};

}  // namespace

PruneRun run_prune(const PruneRequest& request) {
  return Runner(request).run();
}

}  // namespace ulp::app
