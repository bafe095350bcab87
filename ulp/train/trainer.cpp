#include "ulp/train/trainer.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/autocast/precision.h"
#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/base/parse_json.h"
#include "ulp/io/checkpoint.h"
#include "ulp/train/fp8_task.h"
#include "ulp/train/stepper.h"

namespace ulp::train {

namespace {

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

/// The task as a precision with fp8 layers computes it.
Task in_fp8(Task task, const TrainOptions& options) {
  if (!options.precision->fp8) return task;
  return fp8_task(std::move(task), amp::Fp8Recipe::named(options.precision.name()));
}

torch::nn::Module& in_precision(torch::nn::Module& model, const amp::Precision& precision) {
  amp::apply_precision(model, precision);
  model.train();
  return model;
}

}  // namespace

StepObserver::~StepObserver() = default;
void StepObserver::begin(int64_t, double) {}
void StepObserver::gradients(const torch::nn::Module&, double) {}
void StepObserver::end(const StepInfo&) {}

struct Trainer::State {
  Task task;
  TrainOptions options;
  amp::Precision precision;
  int64_t steps_per_epoch, total_steps;
  Stepper stepper;
  StepObserver* observer = nullptr;
  amp::AmaxReduction reduce_amaxes;
  int64_t next_step = 0;

  State(Task task_in, const TrainOptions& options_in)
      : task(in_fp8(std::move(task_in), options_in)),
        options(options_in),
        precision(options.resolved_precision()),
        steps_per_epoch(std::max<int64_t>(task.batches->batches() / options.accumulate, 1)),
        total_steps(count_steps(task.batches->batches(), options)),
        stepper(in_precision(*task.model, precision), options, total_steps, task.masks) {}

  TaskBatch next_batch() {
    std::optional<TaskBatch> batch = task.batches->next();
    if (!batch) batch = task.batches->next();  // the end of an epoch
    return *std::move(batch);
  }

  at::Tensor forward_loss(TaskBatch batch) {
    batch.inputs = amp::cast_input(precision, batch.inputs);
    at::Tensor output;
    {
      const auto guard = amp::autocast_for(precision, c10::kCPU);
      output = task.forward(batch);
    }
    return task.loss(output, batch);
  }

  /// Forward and backward of the step's batches; returns their mean loss.
  double accumulate() {
    double sum = 0;
    for (int64_t i = 0; i < options.accumulate; ++i) {
      const at::Tensor loss = forward_loss(next_batch());
      stepper.backward(loss, options.accumulate);
      sum += loss.item<double>();
    }
    return sum / static_cast<double>(options.accumulate);
  }

  std::string config() const {
    auto json = nlohmann::json::parse(options.to_json());
    json["task"] = task.description;
    return json.dump();
  }

  void check_config(const std::string& config_of_file) const {
    if (config_of_file == config()) return;
    auto got = parse_json_or_discarded(config_of_file);
    respell_scaler(got);
    const auto expected = nlohmann::json::parse(config());
    if (got == expected) return;
    fail("train.Trainer.resume", "expected a checkpoint of a run with ", differences(expected, got));
  }

  io::CheckpointParts parts() {
    io::CheckpointParts parts{.model = task.model.get(), .config = config(), .extra = {}};
    stepper.add_to(parts);
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
void Trainer::reduce_amaxes(amp::AmaxReduction reduce) {
  state_->reduce_amaxes = std::move(reduce);
}
void Trainer::observe(StepObserver* observer) {
  state_->observer = observer;
}

StepInfo Trainer::step() {
  State& s = *state_;
  StepInfo info{.step = s.next_step,
                .epoch = s.next_step * s.options.accumulate / s.task.batches->batches(),
                .learning_rate = s.stepper.learning_rate(),
                .scale = s.stepper.scale()};
  s.stepper.zero_grad();
  if (s.observer != nullptr) s.observer->begin(info.step, info.scale);
  info.loss = s.accumulate();
  if (s.observer != nullptr) s.observer->gradients(*s.task.model, info.scale);
  if (!std::isfinite(info.loss)) {
    fail("train.Trainer.step", "expected a finite loss, got ", info.loss, " at step ", info.step,
         "; a smaller learning rate usually helps");
  }
  const Update update = s.stepper.step();
  if (s.precision.fp8) amp::update_fp8(*s.task.model, s.reduce_amaxes);
  info.result = update.result;
  info.grad_norm = update.grad_norm;
  ++s.next_step;
  if (s.observer != nullptr) s.observer->end(info);
  return info;
}

void Trainer::save(const std::filesystem::path& path) const {
  State& s = *state_;
  io::CheckpointParts parts = s.parts();
  parts.loader = s.task.batches->state();
  parts.step = s.next_step;
  parts.epoch = s.task.batches->epoch();
  io::save_checkpoint(path, parts);
}

void Trainer::resume(const std::filesystem::path& path) {
  State& s = *state_;
  s.check_config(io::read_checkpoint_info(path).config);
  io::CheckpointParts parts = s.parts();
  io::load_checkpoint(path, parts);
  s.stepper.restore(parts, path);
  s.task.batches->restore(parts.loader);
  s.stepper.hold_masks(*s.task.model);
  s.next_step = parts.step;
}

}  // namespace ulp::train
