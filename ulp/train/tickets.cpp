#include "ulp/train/tickets.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/base/interrupt.h"
#include "ulp/base/read_file.h"
#include "ulp/io/safetensors.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/pruner.h"
#include "ulp/train/checkpointing.h"

namespace ulp::train {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFindTicketsWhere = "train.find_tickets";
constexpr const char* kRunKey = "ulp.tickets";  // what a file of a round says of its run
constexpr const char* kScoreKey = "ulp.score";

void check(const TicketTask& task, const TicketOptions& options) {
  if (!task.model || !task.batches || !task.evaluate)
    fail(kFindTicketsWhere, "expected a model, batches and a way to evaluate");
  if (options.rewind == Rewind::reinitialize && !task.reinitialize)
    fail(kFindTicketsWhere, "expected TicketTask::reinitialize with Rewind::reinitialize, got none");
}

/// Weights and masks of the model.
io::NamedTensors state_of(const graph::GraphModule& model) {
  io::NamedTensors state;
  for (const auto& [name, tensor] : io::named_state(model)) state.emplace_back(name, tensor.detach().clone());
  return state;
}

prune::NewMasks masks_of(const graph::GraphModule& model) {
  prune::NewMasks held;
  for (const prune::ParameterMask& mask : prune::masks(model.graph()))
    held.emplace_back(mask.parameter, prune::find_mask(model.graph(), mask.parameter).clone());
  return held;
}

double share_kept(const graph::GraphModule& model, const std::vector<std::string>& names) {
  int64_t kept = 0, elements = 0;
  for (const prune::ParameterMask& mask : prune::masks(model.graph())) {
    if (std::ranges::find(names, mask.parameter) == names.end()) continue;
    kept += mask.kept;
    elements += mask.elements;
  }
  return elements == 0 ? 1 : static_cast<double>(kept) / static_cast<double>(elements);
}

/// A number with all its digits.
std::string exact(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

/// Everything that a continued run must share.
std::string describe(const TicketTask& task, const TicketOptions& options) {
  std::string text = task.description + "; " + options.recipe.to_json() + options.training.to_json() +
                     enum_name(options.rewind) + ' ' + std::to_string(options.step);
  if (options.rewind == Rewind::fine_tune) text += ' ' + exact(options.fine_tune_rate);
  return text;
}

Trainer make_trainer(const TicketTask& task, const TrainOptions& options, uint64_t seed) {
  return Trainer(
      {.model = task.model,
       .forward = [model = task.model](const TaskBatch& batch) { return model->forward(batch.inputs); },
       .batches = task.batches(seed),
       .description = task.description},
      options);
}

double evaluate(const TicketTask& task) {
  task.model->eval();
  const torch::NoGradGuard no_grad;
  return task.evaluate(*task.model);
}

/// The rounds of one folder.
class Rounds {
 public:
  Rounds(const TicketTask& task, const TicketOptions& options, const fs::path& folder)
      : task_(task),
        options_(options),
        folder_(folder),
        run_(describe(task, options)),
        names_(options.recipe.parameters_in(task.model->graph())) {
    fs::create_directories(folder);
    const fs::path description = folder / "run.txt";
    if (fs::exists(description)) {
      expect_this(read_file(kFindTicketsWhere, description));
      return;
    }
    AtomicFile file(description);
    file.write(run_);
    file.commit();
  }

  std::vector<TicketRound> run(const OnTicketStep& on_step) {
    prune::add_masks(*task_.model, names_);
    std::vector<TicketRound> rounds;
    for (int64_t round = 0; round <= options_.rounds; ++round)
      rounds.push_back(fs::exists(file(round)) ? load(round) : train(round, on_step));
    return rounds;
  }

 private:
  fs::path file(int64_t round) const { return folder_ / ("round_" + std::to_string(round) + ".safetensors"); }
  fs::path running(int64_t round) const { return folder_ / ("round_" + std::to_string(round) + ".running"); }
  fs::path start() const { return folder_ / ("step_" + std::to_string(options_.step) + ".checkpoint"); }

  void expect_this(const std::string& run) const {
    if (run != run_)
      fail(kFindTicketsWhere, "expected rounds of this run in '", folder_.string(),
           "', got those of another one");
  }

  TicketRound load(int64_t round) {
    const io::TensorFile stored = io::load_tensors(file(round));
    const auto of = stored.metadata.find(kRunKey), score = stored.metadata.find(kScoreKey);
    expect_this(of == stored.metadata.end() ? "" : of->second);
    const std::string text = score == stored.metadata.end() ? "" : score->second;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      fail_file(kFindTicketsWhere, "expected a score in '", file(round).string(), "', got '", text, "'");
    io::assign_state(*task_.model, stored.tensors, /*strict=*/true, file(round).string());
    task_.model->eval();
    return {round, share_kept(*task_.model, names_), value};
  }

  TrainOptions training(int64_t round) const {
    TrainOptions options = options_.training;
    if (round > 0 && options_.rewind == Rewind::fine_tune) {
      options.learning_rate = options_.fine_tune_rate;
      options.schedule = amp::Schedule::constant;
      options.warmup = 0;
    }
    return options;
  }

  TicketRound train(int64_t round, const OnTicketStep& on_step) {
    task_.model->eval();  // as load() leaves it in a run that goes on
    if (round > 0) prune::prune(*task_.model, options_.recipe, task_.inputs);
    const prune::NewMasks masks = masks_of(*task_.model);
    const bool continued = fs::exists(running(round));
    if (!continued) torch::manual_seed(options_.training.seed + static_cast<uint64_t>(round));
    if (round > 0 && options_.rewind == Rewind::reinitialize && !continued) task_.reinitialize(*task_.model);
    Trainer trainer = make_trainer(task_, training(round), options_.training.seed);
    if (continued) {
      trainer.resume(running(round));
    } else if (round > 0 && options_.rewind == Rewind::weights) {
      trainer.resume(start());
      prune::set_masks(*task_.model, masks);
      trainer.hold_masks();
      task_.model->train();
    }
    const bool marks = round == 0 && options_.rewind == Rewind::weights;
    if (marks && options_.step == 0 && !continued) trainer.save(start());
    run_to_end(trainer, {.path = running(round)}, [&](const StepInfo& info) {
      if (marks && trainer.next_step() == options_.step) trainer.save(start());
      if (on_step) on_step(round, info, trainer.total_steps());
    });
    const TicketRound result{round, share_kept(*task_.model, names_), evaluate(task_)};
    io::save_tensors(file(round), io::named_state(*task_.model),
                     {{kRunKey, run_}, {kScoreKey, exact(result.score)}});
    fs::remove(running(round));
    return result;
  }

  const TicketTask& task_;
  const TicketOptions& options_;
  const fs::path& folder_;
  std::string run_;
  std::vector<std::string> names_;  // of the weights that are pruned
};

/// Batches of another order, from as far on as the stream whose state is restored.
class OtherOrder final : public BatchStream {
 public:
  OtherOrder(std::unique_ptr<BatchStream> stream, int64_t batches)
      : stream_(std::move(stream)), skipped_(batches) {}
  std::optional<TaskBatch> next() override { return stream_->next(); }
  int64_t samples() const override { return stream_->samples(); }
  int64_t batches() const override { return stream_->batches(); }
  int64_t epoch() const override { return stream_->epoch(); }
  std::string state() const override { return stream_->state(); }
  void restore(const std::string&) override {
    for (int64_t i = 0; i < skipped_; ++i) {
      if (!stream_->next()) stream_->next();  // the end of an epoch
    }
  }

 private:
  std::unique_ptr<BatchStream> stream_;
  int64_t skipped_;
};

/// Puts weights, masks and mode of a model back.
class KeepsState {
 public:
  explicit KeepsState(graph::GraphModule& model)
      : model_(model), state_(state_of(model)), training_(model.is_training()) {}
  ~KeepsState() {
    try {
      io::assign_state(model_, state_, /*strict=*/true, "the model before");
    } catch (const std::exception&) {  // of the same model
    }
    model_.train(training_);
  }
  KeepsState(const KeepsState&) = delete;
  KeepsState& operator=(const KeepsState&) = delete;

 private:
  graph::GraphModule& model_;
  io::NamedTensors state_;
  bool training_;
};

/// (1 - share) one + share other, for the numbers that are floating point.
io::NamedTensors between(const io::NamedTensors& one, const io::NamedTensors& other, double share) {
  io::NamedTensors mixed;
  for (size_t i = 0; i < one.size(); ++i) {
    const at::Tensor &a = one[i].second, &b = other.at(i).second;
    mixed.emplace_back(one[i].first, a.is_floating_point() ? at::lerp(a, b, share) : a);
  }
  return mixed;
}

}  // namespace

void TicketOptions::validate() const {
  recipe.validate();
  training.validate();
  if (rounds < 0) fail(kFindTicketsWhere, "expected rounds >= 0, got ", rounds);
  if (step < 0) fail(kFindTicketsWhere, "expected a step >= 0 to rewind to, got ", step);
  if (prune::source_of(recipe.score) == prune::ScoreSource::training)
    fail(kFindTicketsWhere, "expected scores of a model as it is, got ", enum_name(recipe.score));
  if (rounds > 1 && recipe.amount.of == prune::AmountOf::all &&
      recipe.pattern.kind != prune::PatternKind::n_m)
    fail(kFindTicketsWhere,
         "expected an amount of what remains for several rounds, got one of all, which one round reaches");
  if (!(fine_tune_rate > 0)) fail(kFindTicketsWhere, "expected a fine_tune_rate > 0, got ", fine_tune_rate);
}

std::vector<TicketRound> find_tickets(const TicketTask& task, const TicketOptions& options,
                                      const fs::path& folder, const OnTicketStep& on_step) {
  options.validate();
  check(task, options);
  prune::check(*task.model, options.recipe, task.inputs);
  const int64_t steps = make_trainer(task, options.training, options.training.seed).total_steps();
  if (options.rewind == Rewind::weights && options.step > steps)
    fail(kFindTicketsWhere, "expected a step of at most ", steps, " to rewind to, got ", options.step);
  return Rounds(task, options, folder).run(on_step);
}

double linear_barrier(const TicketTask& task, const TicketOptions& options, const fs::path& folder,
                      int64_t points) {
  options.validate();
  check(task, options);
  if (points < 1) fail("train.linear_barrier", "expected points >= 1, got ", points);
  fs::create_directories(folder);
  const KeepsState keeps(*task.model);
  const fs::path start = folder / "barrier.checkpoint";
  const PollsInterrupts polls;
  {
    Trainer trainer = make_trainer(task, options.training, options.training.seed);
    if (options.step > trainer.total_steps())
      fail("train.linear_barrier", "expected a step of at most ", trainer.total_steps(), ", got ",
           options.step);
    while (trainer.next_step() < options.step) {
      check_interrupted();
      trainer.step();
    }
    trainer.save(start);
  }
  io::NamedTensors ends[2];
  double scores[2] = {};
  for (const uint64_t end : {0, 1}) {
    TicketTask other = task;
    other.batches = [&](uint64_t seed) -> std::unique_ptr<BatchStream> {
      return std::make_unique<OtherOrder>(task.batches(seed), options.step * options.training.accumulate);
    };
    Trainer trainer = make_trainer(end == 0 ? task : other, options.training, options.training.seed + end);
    trainer.resume(start);
    while (!trainer.done()) {
      check_interrupted();
      trainer.step();
    }
    ends[end] = state_of(*task.model);
    scores[end] = evaluate(task);
  }
  double least = std::min(scores[0], scores[1]);
  for (int64_t i = 1; i <= points; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(points + 1);
    io::assign_state(*task.model, between(ends[0], ends[1], share), /*strict=*/true,
                     "the line between two runs");
    least = std::min(least, evaluate(task));
  }
  fs::remove(start);
  return (scores[0] + scores[1]) / 2 - least;
}

}  // namespace ulp::train
