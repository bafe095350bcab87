#include "ulp/app/prune/prune.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ulp/app/model_io/scratch_folder.h"
#include "ulp/app/prune/importance_provider.h"
#include "ulp/app/prune/prune_metrics.h"
#include "ulp/app/prune/prune_progress.h"
#include "ulp/app/report/report_parts.h"
#include "ulp/app/train/prunes_while_training.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/graph/module_copy.h"
#include "ulp/lower/lower.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/pruner.h"
#include "ulp/prune/structured/structure_file.h"
#include "ulp/train/evaluate.h"
#include "ulp/train/learning.h"
#include "ulp/train/tickets.h"

namespace ulp::app {

namespace {

constexpr int64_t kScoreBatch = 64;

class PruneRunner {
 public:
  explicit PruneRunner(const PruneRequest& request) : request_(request), figures_(request, run_.outcome) {
    run_.outcome.model = request.model;
    run_.outcome.method = request.recipe.cuts() ? "channels" : "weights";
  }

  PruneRun run() {
    check_request();
    dense_ = graph::copy_of(*request_.captured);
    dense_->eval();
    if (!request_.sweep_only) check_network();
    find_progress();
    figures_.add_state("dense", *dense_);
    for (const double kept : request_.sweep) add_point(kept);
    if (request_.sweep_only) return std::move(run_);
    current_ = graph::copy_of(*dense_);
    try {
      request_.tickets ? tickets() : request_.recipe.cuts() ? cut() : mask();
      figures_.add_parameters(dense_->graph(), current_->graph());
      if (request_.latency) figures_.measure_latency();
    } catch (const Interrupted&) {
      if (!polls_) throw;
      run_.outcome.interrupted = true;  // what there is is kept
    }
    run_.model = prune::bake(*current_);
    run_.model->eval();
    if (request_.recipe.cuts()) run_.structure = prune::structure_to_json(structure_, dense_->graph());
    return std::move(run_);
  }

 private:
  void show(Stage stage) const {
    if (request_.progress) request_.progress(stage);
  }

  /// Finds what is wrong with what was asked for.
  void check_request() const {
    constexpr const char* kWhere = "app.run_prune";
    request_.recipe.validate();
    if (request_.finetune && !request_.train_batches) fail(kWhere, "expected data to train on, got none");
    if (!request_.finetune && !request_.saving.path.empty())
      fail(kWhere, "expected training for a checkpoint, got none");
    if (!request_.structure.empty() && !request_.recipe.cuts())
      fail(kWhere, "expected a recipe of channels with a structure, got one of weights");
    if (request_.tickets) return check_tickets();
    if (request_.finetune) return;
    if (!request_.recipe.training.loss.empty())
      fail(kWhere, "expected training for a recipe with losses of distillation, got none");
    const auto* masks = std::get_if<prune::Recipe>(&request_.recipe.recipe);
    if (masks != nullptr && masks->schedule.last() > 0) {
      fail(kWhere, "expected training for a recipe whose schedule goes on to step ", masks->schedule.last(),
           ", got none");
    }
    const auto* cuts = std::get_if<prune::ChannelPruningRecipe>(&request_.recipe.recipe);
    if (cuts != nullptr && cuts->lambda > 0)
      fail(kWhere, "expected training for a recipe with a regularizer, got none");
  }

  void check_tickets() const {
    constexpr const char* kWhere = "app.run_prune";
    if (request_.recipe.cuts())
      fail(kWhere, "expected a recipe of weights for lottery tickets, got one of channels");
    if (!request_.train_batches || !request_.test_batches)
      fail(kWhere, "expected data to train on and to test with for lottery tickets, got none");
    if (request_.finetune || !request_.saving.path.empty())
      fail(kWhere,
           "expected no further training and no checkpoint beside lottery tickets, whose rounds are kept");
    if (!request_.recipe.training.loss.empty())
      fail(kWhere, "expected labels alone for lottery tickets, got losses of distillation");
    if (request_.tickets->rounds < 1)
      fail(kWhere, "expected at least one round of lottery tickets, got ", request_.tickets->rounds);
  }

  /// Finds what is wrong with the recipe for this network before anything is measured.
  void check_network() const {
    if (!request_.structure.empty()) {
      prune::structure_from_json(request_.structure, dense_->graph());
      return;
    }
    if (const auto* recipe = std::get_if<prune::Recipe>(&request_.recipe.recipe)) {
      recipe->parameters_in(dense_->graph());
      return;
    }
    prune::ChannelPruningRecipe recipe = std::get<prune::ChannelPruningRecipe>(request_.recipe.recipe);
    if (prune::needs_data(recipe.criterion)) recipe.criterion = prune::Criterion::l2;
    recipe.measured_widths = false;
    if (recipe.measure == prune::Measure::latency) {  // whose target needs a clock
      recipe.measure = prune::Measure::macs;
      recipe.share = 1;
    }
    prune::prune_by_recipe(*dense_, recipe, recipe.share);
  }

  /// Where the run is to go on.
  void find_progress() {
    const train::Checkpointing& saving = request_.saving;
    if (!saving.resume || !std::filesystem::exists(saving.path)) return;
    resumed_ = read_progress(saving.path, request_.recipe.to_json(), dense_->graph());
    const auto cuts = static_cast<int64_t>(resumed_->structure.cuts.size());
    const int64_t training = request_.recipe.cuts() && request_.structure.empty() ? cuts : 1;
    if (resumed_->training != training) {
      fail_file("app.run_prune", "expected training ", training, " of a network after ", cuts, " cuts in '",
                saving.path.string(), "', got ", resumed_->training);
    }
    run_.outcome.notes.push_back("continued from " + saving.path.string() +
                                 ": what the run before it measured is not shown again");
  }

  // Data.

  /// The batches that scores are computed with.
  std::vector<train::TaskBatch> score_batches() const {
    constexpr const char* kWhere = "app.run_prune";
    if (!request_.train_batches) fail(kWhere, "expected data to compute the scores with, got none");
    const auto source = request_.train_batches(
        {.batch = std::min(kScoreBatch, request_.samples), .shuffle = true, .drop_last = false, .seed = 0});
    std::vector<train::TaskBatch> batches;
    for (int64_t left = request_.samples; left > 0;) {
      const std::optional<train::TaskBatch> batch = source->next();
      if (!batch) break;
      const int64_t count = std::min(left, batch->inputs.size(0));
      batches.push_back({batch->inputs.narrow(0, 0, count), batch->targets.narrow(0, 0, count)});
      left -= count;
    }
    if (batches.empty()) fail(kWhere, "expected samples to compute the scores with, got none");
    return batches;
  }

  prune::ScoreInputs score_inputs(const prune::Recipe& recipe) const {
    const prune::ScoreSource source = prune::source_of(recipe.score);
    if (source != prune::ScoreSource::loss && source != prune::ScoreSource::inputs) return {};
    if (source == prune::ScoreSource::inputs && !request_.inputs.empty()) return {.inputs = request_.inputs};
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
  ImportanceProvider& source() {
    if (!source_) {
      source_.emplace(std::get<prune::ChannelPruningRecipe>(request_.recipe.recipe),
                      ImportanceProvider::Setup{.dense = dense_.get(),
                                                .width_table = request_.width_table,
                                                .threads = request_.threads,
                                                .batches = [this] { return score_batches(); },
                                                .inputs = request_.inputs,
                                                .progress = request_.progress});
      whole_ = source_->measure(*dense_);
    }
    return *source_;
  }

  // Pruning.

  void mask() {
    const auto& recipe = std::get<prune::Recipe>(request_.recipe.recipe);
    const prune::ScoreInputs inputs = score_inputs(recipe);
    if (!request_.finetune) {
      add_orders(prune::prune(*current_, recipe, inputs));
      keep();
      current_ = prune::bake(*current_);
      figures_.add_state("pruned", *current_);
      return;
    }
    if (recipe.schedule.last() == 0 && !resumed_) {  // what it is before training
      const auto trial = graph::copy_of(*dense_);
      prune::prune(*trial, recipe, inputs);
      figures_.add_state("pruned", *prune::bake(*trial));
    }
    prune::Pruner pruner(current_, recipe, inputs);
    add_orders(pruner.report());
    try {
      train(1, [&](train::Trainer& trainer, graph::GraphModule* form) {
        return std::make_unique<PrunesWhileTraining>(pruner, trainer, form);
      });
    } catch (const Interrupted&) {
      if (pruner.report().sparsity() > 0) keep();
      throw;
    }
    keep();
    current_ = prune::bake(*current_);
    figures_.add_state("trained on", *current_);
  }

  /// The recipe of each round: a share of all that is to be gone in the end is reached by the same factor
  /// each time.
  prune::Recipe recipe_of_round(int64_t rounds) const {
    prune::Recipe recipe = std::get<prune::Recipe>(request_.recipe.recipe);
    recipe.schedule = {};
    if (rounds > 1 && recipe.amount.of == prune::AmountOf::all && !recipe.amount.count)
      recipe.amount =
          prune::Amount::share(1 - std::pow(1 - recipe.amount.fraction, 1 / static_cast<double>(rounds)));
    return recipe;
  }

  double percent_right(graph::GraphModule& model) const {
    const std::unique_ptr<train::BatchStream> batches = request_.test_batches();
    return train::evaluate([&](const train::TaskBatch& batch) { return model.forward(batch.inputs); },
                           *batches)
        .percent();
  }

  void tickets() {
    const TicketRounds& wanted = *request_.tickets;
    train::TrainOptions options = request_.recipe.training.options;
    train::TicketOptions how{.recipe = recipe_of_round(wanted.rounds),
                             .rounds = wanted.rounds,
                             .rewind = wanted.rewind,
                             .step = wanted.step,
                             .training = options};
    const train::TicketTask task{.model = current_,
                                 .batches =
                                     [&](uint64_t seed) {
                                       return request_.train_batches(train::StreamOptions::training(
                                           options.batch, seed, options.augment));
                                     },
                                 .evaluate = [&](graph::GraphModule& model) { return percent_right(model); },
                                 .description = request_.model + " " + request_.recipe.to_json(),
                                 .inputs = score_inputs(how.recipe)};
    std::optional<ScratchFolder> scratch;
    if (wanted.folder.empty()) scratch.emplace("ulp_tickets");
    run_.outcome.rounds =
        train::find_tickets(task, how, scratch ? scratch->path() : wanted.folder,
                            [&](int64_t round, const train::StepInfo& info, int64_t total_steps) {
                              show({"round " + std::to_string(round), "step", info.step + 1, total_steps});
                            });
    current_->eval();
    current_ = prune::bake(*current_);
    figures_.add_state("ticket", *current_);
  }

  void cut() {
    const auto& recipe = std::get<prune::ChannelPruningRecipe>(request_.recipe.recipe);
    if (!request_.structure.empty()) {
      structure_ = prune::structure_from_json(request_.structure, dense_->graph());
      return use(prune::prune_to_structure(*dense_, structure_).module, 1, "");
    }
    structure_.inexact = recipe.inexact;
    ImportanceProvider& source = this->source();
    int64_t step = 1;
    if (resumed_ && resumed_->training > 0) {
      structure_ = resumed_->structure;
      step = resumed_->training;
      use(prune::prune_to_structure(*dense_, structure_).module, step, suffix(recipe, step),
          /*show_pruned=*/false);
      ++step;
    } else if (recipe.lambda > 0) {
      penalize(recipe);
    }
    for (; step <= recipe.steps; ++step) {
      const double now = step == 1 ? whole_ : source.measure(*current_);
      prune::PrunedModel narrower =
          source.prune(*current_, std::min(1.0, whole_ * recipe.share_after(step) / now));
      std::ranges::move(source.notes(narrower), std::back_inserter(run_.outcome.notes));
      structure_.cuts.push_back(std::move(narrower.kept));
      if (step == 1) add_obstacles(narrower);
      use(narrower.module, step, suffix(recipe, step),
          /*show_pruned=*/step == recipe.steps || request_.finetune);
    }
  }

  /// Of the names of a step's states.
  static std::string suffix(const prune::ChannelPruningRecipe& recipe, int64_t step) {
    return recipe.steps == 1 ? "" : " " + std::to_string(step);
  }

  /// From here on Ctrl-C ends the run with what there is, but for a run that can be resumed.
  void keep() {
    if (!polls_ && request_.saving.path.empty()) polls_.emplace();
  }

  /// Goes on with a network that was cut: trains it where training was asked for.
  void use(const std::shared_ptr<graph::GraphModule>& cut, int64_t step, const std::string& suffix,
           bool show_pruned = true) {
    current_ = cut;
    current_->zero_grad();
    keep();
    if (show_pruned) figures_.add_state("pruned" + suffix, *current_);
    if (!request_.finetune) return;
    train(step);
    figures_.add_state("trained on" + suffix, *current_);
  }

  /// Trains so that unimportant units become small.
  void penalize(const prune::ChannelPruningRecipe& recipe) {
    const prune::RegularizeOptions options{
        .penalty = recipe.regularizer, .lambda = recipe.lambda, .growth = recipe.growth};
    train(0, [&](train::Trainer& trainer, graph::GraphModule*) {
      return std::make_unique<PenalizesWhileTraining>(
          current_, prune::groups(current_->graph(), {.inexact = recipe.inexact}), options, trainer);
    });
    current_->zero_grad();
    figures_.add_state("penalized", *current_);
  }

  /// Makes what else happens in each step; `form`: the network as the trainer holds it, where that is another
  /// form of it.
  using Observe =
      std::function<std::unique_ptr<train::StepObserver>(train::Trainer& trainer, graph::GraphModule* form)>;

  /// The training of this number (PruneProgress). Ctrl-C leaves the network as it is then.
  void train(int64_t number, const Observe& observe = {}) {
    const FineTuning& training = request_.recipe.training;
    const train::TrainOptions& options = training.options;
    auto batches =
        request_.train_batches(train::StreamOptions::training(options.batch, options.seed, options.augment));
    const auto learner = taught_by(*dense_, current_, training, *batches);
    train::Task task = learner ? train::learning_task(learner, std::move(batches))
                               : train::Task{.model = current_,
                                             .forward =
                                                 [this](const train::TaskBatch& batch) {
                                                   return current_->forward(batch.inputs);
                                                 },
                                             .batches = std::move(batches)};
    task.description = describe({number, structure_}, request_.recipe.to_json(), dense_->graph());
    train::Trainer trainer(std::move(task), options);
    const auto observer = observe ? observe(trainer, learner ? &learner->tapped() : nullptr) : nullptr;
    trainer.observe(observer.get());
    if (resumed_ && resumed_->training == number) train::resume_from(trainer, request_.saving);
    train::run_to_end(trainer, request_.saving, [&](const train::StepInfo& info) {
      show({"training on", "step", info.step + 1, trainer.total_steps()});
    });
    current_->eval();
  }

  void add_orders(const prune::PruneReport& report) {
    for (const prune::ReorderedGroup& group : report.reordered) {
      run_.outcome.notes.push_back(group.name + ": reordered, " +
                                   number("%.1f %% of the scores are kept", 100 * group.kept) +
                                   number(" instead of %.1f %%", 100 * group.kept_before));
    }
  }

  void add_obstacles(const prune::PrunedModel& narrower) {
    for (const auto* obstacles : {&narrower.groups.obstacles, &narrower.whole}) {
      for (const prune::Obstacle& obstacle : *obstacles)
        run_.outcome.reasons.push_back("not pruned: " + obstacle.layer + ": " + obstacle.reason);
    }
    for (const prune::Group& group : narrower.groups.groups) {
      for (const std::string& note : group.notes) run_.outcome.reasons.push_back(group.name() + ": " + note);
    }
  }

  /// A point of the sweep; one that cannot be reached is a note.
  void add_point(double kept) {
    try {
      run_.outcome.sweep.push_back(point(kept));
    } catch (const Interrupted&) {
      throw;
    } catch (const Error& error) {
      run_.outcome.notes.push_back("sweep" + number(" %g: ", kept) + error.what());
    }
  }

  SweepPoint point(double kept) {
    const std::shared_ptr<graph::GraphModule> trial = graph::copy_of(*dense_);
    SweepPoint point{.asked = kept};
    std::shared_ptr<graph::GraphModule> pruned;
    if (request_.recipe.cuts()) {
      const prune::PrunedModel narrower = source().prune(*trial, kept);
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
    point.accuracy = figures_.accuracy("sweep", lower(*pruned));
    return point;
  }

  const PruneRequest& request_;
  PruneRun run_;
  PruneFigures figures_;
  std::shared_ptr<graph::GraphModule> dense_, current_;
  std::optional<ImportanceProvider> source_;
  double whole_ = 0;  // what the recipe measures, of the dense network
  prune::Structure structure_;
  std::optional<PruneProgress> resumed_;
  std::optional<PollsInterrupts> polls_;  // there where current_ has lost something
};

}  // namespace

PruneRun run_prune(const PruneRequest& request) {
  return PruneRunner(request).run();
}

}  // namespace ulp::app
