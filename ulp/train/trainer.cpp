#include "ulp/train/trainer.h"

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/threads/adaptive_threads.h"
#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/base/interrupt.h"
#include "ulp/base/parse_json.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/checkpoint.h"
#include "ulp/train/captured_task.h"
#include "ulp/train/components.h"
#include "ulp/train/model_part.h"
#include "ulp/train/stepper.h"

namespace ulp::train {

namespace {

constexpr const char* kTrainerWhere = "train.Trainer";

/// "learning_rate 0.2, got 0.5; seed 1, got 2".
std::string differences(const nlohmann::json& expected, const nlohmann::json& got) {
  std::string text;
  for (const auto& [name, value] : expected.items()) {
    const auto other = got.find(name);
    if (other != got.end() && *other == value) continue;
    text += (text.empty() ? "" : "; ") + name + ' ' + value.dump() + ", got " +
            (other == got.end() ? "nothing" : shown(*other));
  }
  return text;
}

/// Older files have the scaler as it was typed: "static:8.0", "keras3".
void respell_scaler(nlohmann::json& config) {
  if (!config.is_object() || !config.contains("scaler") || !config["scaler"].is_string()) return;
  const auto spec = amp::ScalerSpec::from_text(config["scaler"].get<std::string>());
  if (spec) config["scaler"] = spec->text();
}

/// The steps of a run over data of so many batches.
int64_t count_steps(int64_t batches_per_epoch, const TrainOptions& options) {
  if (options.max_steps > 0) return options.max_steps;
  int64_t batches = 0;
  if (__builtin_mul_overflow(batches_per_epoch, options.epochs, &batches)) {
    fail("train.Trainer", "expected fewer epochs of ", batches_per_epoch, " batches, got ", options.epochs);
  }
  if (options.accumulate > batches) {
    fail("train.Trainer", "expected accumulate to be at most the ", batches, " batches of the run, got ",
         options.accumulate);
  }
  return batches / options.accumulate;
}

/// The task as a precision with fp8 or int8 layers computes it.
Task in_eight_bits(Task task, const TrainOptions& options) {
  if (options.precision->int8)
    return int8_training.functions(kTrainerWhere).task(std::move(task), options.precision.name());
  if (!options.precision->fp8) return task;
  return fp8_training.functions(kTrainerWhere).task(std::move(task), options.precision.name());
}

/// The task as it is trained.
Task to_train(Task task, const TrainOptions& options) {
  if (options.compile) return compiled_training.functions(kTrainerWhere).task(std::move(task));
  const bool parted = task.parted != nullptr;
  task = in_eight_bits(std::move(task), options);
  if (!task.activations) return task;
  if (parted || task.parallel.zero == distributed::ZeroStage::parameters)
    fail(kTrainerWhere,
         "expected all of the model in each process where its activations have a plan, got parts");
  return captured_task(std::move(task), kTrainerWhere, [](const auto& captured) { return captured; });
}

torch::nn::Module& in_precision(torch::nn::Module& model, const amp::Precision& precision) {
  amp::apply_precision(model, precision);
  model.train();
  return model;
}

constexpr const char* kSharesName = "shares";
constexpr std::string_view kObserverPrefix = "observer.";

/// What is the observer's of what a checkpoint holds.
io::NamedTensors observer_state(const io::NamedTensors& extra) {
  io::NamedTensors state;
  for (const auto& [name, tensor] : extra) {
    if (name.starts_with(kObserverPrefix)) state.emplace_back(name.substr(kObserverPrefix.size()), tensor);
  }
  return state;
}

/// The names of files, as bytes of a tensor: one a line.
std::pair<std::string, at::Tensor> as_tensor(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + '\n';
  const at::Tensor bytes = torch::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  return {kSharesName, bytes};
}

std::vector<std::string> names_in(const io::NamedTensors& extra) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : extra) {
    if (name != kSharesName || tensor.scalar_type() != at::kByte) continue;
    const auto* bytes = tensor.const_data_ptr<uint8_t>();
    std::istringstream text(std::string(bytes, bytes + tensor.numel()));
    for (std::string line; std::getline(text, line);) names.push_back(line);
  }
  return names;
}

/// Null for a single process.
std::unique_ptr<ModelReplica> make_replica(torch::nn::Module& model, const Task& task) {
  if (!task.group || task.group->size() == 1 || task.parted) return nullptr;
  return several_processes.functions(kTrainerWhere).replica(model, task.group, task.parallel);
}

}  // namespace

StepObserver::~StepObserver() = default;
void StepObserver::begin(int64_t, double) {}
void StepObserver::gradients(const torch::nn::Module&, double) {}
void StepObserver::end(const StepInfo&) {}
io::NamedTensors StepObserver::state() const {
  return {};
}
void StepObserver::restore(const io::NamedTensors&) {}

struct Trainer::State {
  Task task;
  TrainOptions options;
  amp::Precision precision;
  int64_t steps_per_epoch, total_steps;
  std::unique_ptr<ModelReplica> replica;  // null: a single process
  Stepper stepper;
  std::unique_ptr<StepOfTask> compiled;  // null: forward and backward are LibTorch's
  StepObserver* observer = nullptr;
  amp::AmaxReduction reduce_amaxes;
  std::shared_ptr<std::atomic<uint64_t>> draws;  // of the rounding of what stays; null: there is no plan
  int64_t next_step = 0;
  int64_t skips = 0;        // steps in a row, up to the last one, whose loss was not finite
  bool had_shares = false;  // of the checkpoint that was resumed from

  State(Task task_in, const TrainOptions& options_in)
      : task(to_train(std::move(task_in), options_in)),
        options(options_in),
        precision(options.resolved_precision()),
        steps_per_epoch(std::max<int64_t>(task.batches->batches() / options.accumulate, 1)),
        total_steps(count_steps(task.batches->batches(), options)),
        replica(make_replica(in_precision(*task.model, precision), task)),
        stepper(task, options, total_steps, replica.get()) {
    if (task.parted) amp::apply_precision(*task.parted->whole, precision);
    if (task.activations) plan_activations();
    if (options.compile) {
      compiled = compiled_training.functions(kTrainerWhere).step(task, options, *stepper.fused());
      stepper.use(compiled.get());
    }
    if (several()) {
      reduce_amaxes = [group = task.group](at::Tensor& amaxes) {
        group->all_reduce(amaxes, distributed::ReduceOp::max).wait();
      };
    }
    // Dropout differs from process to process.
    if (rank() > 0 && draws_own_numbers()) torch::manual_seed(options.seed + static_cast<uint64_t>(rank()));
  }

  void plan_activations() {
    auto& graph = dynamic_cast<graph::GraphModule&>(*task.model);
    memory::CheckpointPlan plan = task.activations(graph);
    draws = plan.draws = std::make_shared<std::atomic<uint64_t>>(0);
    activation_plans.functions(kTrainerWhere).checkpoint(graph, std::move(plan));
  }

  bool shares_parameters() const {
    return replica && task.parallel.zero == distributed::ZeroStage::parameters;
  }
  /// Parameters that processes share are whole while it lives.
  std::shared_ptr<void> whole() const { return replica ? replica->whole_parameters() : nullptr; }
  bool several() const { return task.group && task.group->size() > 1; }
  int rank() const { return task.group ? task.group->rank() : 0; }
  int ranks() const { return task.group ? task.group->size() : 1; }

  TaskBatch next_batch() {
    std::optional<TaskBatch> batch = task.batches->next();
    if (!batch) batch = task.batches->next();  // the end of an epoch
    return *std::move(batch);
  }

  /// Forward and backward of a batch; its loss.
  double learn(TaskBatch batch) {
    if (compiled) return compiled->backward(batch, options.accumulate);
    if (task.parted && task.parted->is_pipeline()) {
      const auto guard = amp::autocast_for(precision, batch.inputs.device().type());
      return task.parted->step(
          {amp::cast_input(precision, batch.inputs)}, batch.targets,
          [&](const at::Tensor& output, const at::Tensor& targets) {
            return task.loss(output, {.inputs = {}, .targets = targets});
          },
          stepper.loss_factor(options.accumulate));
    }
    const at::Tensor loss = forward_loss(std::move(batch));
    stepper.backward(loss, options.accumulate);
    return loss.item<double>();
  }

  void show_gradients(double scale) {
    if (compiled) compiled->give_gradients();
    observer->gradients(*task.model, scale);
    if (compiled) compiled->take_gradients();
  }

  at::Tensor forward_loss(TaskBatch batch) {
    batch.inputs = amp::cast_input(precision, batch.inputs);
    at::Tensor output;
    {
      const auto guard = amp::autocast_for(precision, batch.inputs.device().type());
      output = shares_parameters() ? replica->forward(batch.inputs) : task.forward(batch);
    }
    return task.loss(output, batch);
  }

  /// Forward and backward of the step's batches; returns their mean loss.
  double accumulate() {
    double sum = 0;
    for (int64_t i = 0; i < options.accumulate; ++i) {
      std::shared_ptr<void> quiet;
      if (replica && i + 1 < options.accumulate) quiet = replica->no_sync();
      sum += learn(next_batch());
    }
    return sum / static_cast<double>(options.accumulate);
  }

  /// The mean loss of all processes, and whether one of them is to stop: all come to the same end.
  void agree(StepInfo& info) const {
    if (!several()) return;
    const at::Tensor told = at::tensor({info.loss, interrupted() ? 1.0 : 0.0}, at::kDouble);
    task.group->all_reduce(told).wait();
    info.loss = told[0].item<double>() / ranks();
    info.stop = told[1].item<double>() > 0;
  }

  /// Throws for a loss that is not finite, unless losses are scaled, so that the step is skipped, and there
  /// are not too many of them in a row.
  void judge_loss(const StepInfo& info) {
    skips = std::isfinite(info.loss) ? 0 : skips + 1;
    if (skips == 0 || (stepper.scales() && skips < options.max_skips)) return;
    const std::string in_a_row =
        stepper.scales() ? concatenate(", the last of ", skips, " in a row") : std::string();
    fail("train.Trainer.step", "expected a finite loss, got ", info.loss, " at step ", info.step, in_a_row,
         "; a smaller learning rate usually helps");
  }

  nlohmann::json config() const {
    TrainOptions together = options;
    if (!task.parted) together.batch *= ranks();  // parts of a model all read the same batch
    auto json = nlohmann::json::parse(together.to_json());
    json["task"] = task.description;
    return json;
  }

  void check_config(const std::string& config_of_file) const {
    auto got = parse_json_or_discarded(config_of_file);
    respell_scaler(got);
    if (got.is_object()) got.erase(kStagesEntry);  // another way of sharing out is the same run
    nlohmann::json expected = config();
    if (got == expected) return;
    expected.emplace("compile", false);  // which differences() is to name
    if (got.is_object()) got.emplace("compile", false);
    fail("train.Trainer.resume", "expected a checkpoint of a run with ", differences(expected, got));
  }

  /// Split layers draw the same numbers in every process, so that one state is that of all.
  bool draws_own_numbers() const { return several() && !(task.parted && !task.parted->is_pipeline()); }

  io::CheckpointParts parts(bool saving, bool in_shares = false) {
    nlohmann::json run = config();
    if (task.parted && task.parted->is_pipeline()) run[kStagesEntry] = parse_json(task.parted->stages);
    torch::nn::Module* model = task.parted ? task.parted->whole.get() : task.model.get();
    io::CheckpointParts parts{.model = model, .config = run.dump(), .extra = {}};
    if (task.parted && saving) task.parted->gather();
    stepper.add_to(parts, saving, in_shares);
    return parts;
  }
};

Trainer::Trainer(Task task, const TrainOptions& options) {
  options.validate();
  if (task.batches->batches() < 1) {
    fail("train.Trainer", "expected a batch of at most ", task.batches->samples(), " samples, got ",
         options.batch);
  }
  state_ = std::make_unique<State>(std::move(task), options);
}

Trainer::Trainer(std::shared_ptr<models::ImageModel> model, const io::ImageDataset& data,
                 const TrainOptions& options)
    : Trainer(image_task(std::move(model),
                         image_stream(data, StreamOptions::training(std::max<int64_t>(options.batch, 1),
                                                                    options.seed, options.augment))),
              options) {}

Trainer::~Trainer() = default;

int64_t Trainer::total_steps() const {
  return state_->total_steps;
}
int64_t Trainer::steps_per_epoch() const {
  return state_->steps_per_epoch;
}
int64_t Trainer::next_step() const {
  return state_->next_step;
}
void Trainer::hold_masks() {
  state_->stepper.hold_masks(*state_->task.model);
}
void Trainer::unshard() {
  if (state_->task.parted) state_->task.parted->gather();
  if (state_->replica) state_->replica->unshard();
}
void Trainer::reduce_amaxes(amp::AmaxReduction reduce) {
  state_->reduce_amaxes = std::move(reduce);
}
void Trainer::observe(StepObserver* observer) {
  state_->observer = observer;
}

StepInfo Trainer::step() {
  amp::adapt_threads();
  State& s = *state_;
  StepInfo info{.step = s.next_step,
                .epoch = s.next_step * s.options.accumulate / s.task.batches->batches(),
                .learning_rate = s.stepper.learning_rate(),
                .scale = s.stepper.scale()};
  s.stepper.zero_grad();
  if (s.draws) *s.draws = static_cast<uint64_t>(info.step) << 32;  // a continued run draws the same
  if (s.observer != nullptr) s.observer->begin(info.step, info.scale);
  info.loss = s.accumulate();
  s.agree(info);
  if (s.observer != nullptr) s.show_gradients(info.scale);
  s.judge_loss(info);
  const Update update = s.stepper.step(/*found_inf=*/s.skips > 0);
  if (s.precision.fp8) fp8_training.functions(kTrainerWhere).update(*s.task.model, s.reduce_amaxes);
  info.result = update.result;
  info.grad_norm = update.grad_norm;
  ++s.next_step;
  if (!s.several()) info.stop = interrupted();
  if (s.observer != nullptr) s.observer->end(info);
  return info;
}

void Trainer::save(const std::filesystem::path& path, bool in_shares) const {
  State& s = *state_;
  io::CheckpointParts parts = s.parts(/*saving=*/true, in_shares);
  parts.loader = s.task.batches->state();
  parts.step = s.next_step;
  parts.epoch = s.task.batches->epoch();
  if (s.draws_own_numbers())
    parts.extra = several_processes.functions(kTrainerWhere).random_states(*s.task.group);
  if (s.observer != nullptr) {
    for (const auto& [name, tensor] : s.observer->state())
      parts.extra.emplace_back(std::string(kObserverPrefix) + name, tensor);
  }
  std::vector<std::string> shares;
  if (in_shares) shares = s.stepper.save_shares(path, s.next_step);
  if (!shares.empty()) parts.extra.push_back(as_tensor(shares));
  {
    const auto whole = s.whole();
    if (s.rank() == 0) io::save_checkpoint(path, parts);
  }
  s.stepper.saved();
  if (s.rank() == 0 && (s.several() || s.had_shares))
    several_processes.functions(kTrainerWhere).remove_other_shards(path, shares);
}

void Trainer::resume(const std::filesystem::path& path) {
  State& s = *state_;
  s.check_config(io::read_checkpoint_info(path).config);
  io::CheckpointParts parts = s.parts(/*saving=*/false);
  {
    const auto whole = s.whole();
    io::load_checkpoint(path, parts);
  }
  s.had_shares = !names_in(parts.extra).empty();
  s.stepper.restore(parts, path, names_in(parts.extra));
  s.task.batches->restore(parts.loader);
  s.stepper.hold_masks(*s.task.model);
  if (s.draws_own_numbers())
    several_processes.functions(kTrainerWhere).restore_random_state(*s.task.group, parts.extra);
  if (s.observer != nullptr) s.observer->restore(observer_state(parts.extra));
  s.next_step = parts.step;
  s.skips = 0;
}

}  // namespace ulp::train
