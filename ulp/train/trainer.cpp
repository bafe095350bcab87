#include "ulp/train/trainer.h"

#include <torch/torch.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ulp/amp/autocast.h"
#include "ulp/amp/precision.h"
#include "ulp/base/error.h"
#include "ulp/io/batch_loader.h"
#include "ulp/io/checkpoint.h"
#include "ulp/train/schedule.h"

namespace ulp::train {

void TrainOptions::validate() const {
  const auto positive = [](const char* field, auto value) {
    if (!(value > 0)) fail("train.TrainOptions", "expected ", field, " > 0, got ", value);
  };
  amp::find_precision(precision);
  positive("epochs", epochs);
  positive("batch", batch);
  positive("learning_rate", learning_rate);
  positive("init_scale", init_scale);
  positive("growth_interval", growth_interval);
  if (!(momentum >= 0 && momentum < 1))
    fail("train.TrainOptions", "expected momentum in [0, 1), got ", momentum);
  if (!(weight_decay >= 0)) fail("train.TrainOptions", "expected weight_decay >= 0, got ", weight_decay);
  if (!(warmup >= 0 && warmup < 1)) fail("train.TrainOptions", "expected warmup in [0, 1), got ", warmup);
  if (max_steps < 0) fail("train.TrainOptions", "expected max_steps >= 0, got ", max_steps);
}

std::string TrainOptions::to_json() const {
  return nlohmann::json{{"precision", precision},
                        {"epochs", epochs},
                        {"batch", batch},
                        {"learning_rate", learning_rate},
                        {"momentum", momentum},
                        {"weight_decay", weight_decay},
                        {"warmup", warmup},
                        {"max_steps", max_steps},
                        {"seed", seed},
                        {"augment", augment},
                        {"init_scale", init_scale},
                        {"growth_interval", growth_interval}}
      .dump();
}

struct Trainer::State {
  TrainOptions options;
  amp::Precision precision;
  std::shared_ptr<models::ImageModel> model;
  io::BatchLoader loader;
  torch::optim::SGD optimizer;
  amp::GradScaler scaler;
  int64_t steps_per_epoch = 0, total_steps = 0, next_step = 0;

  State(std::shared_ptr<models::ImageModel> model_in, const io::ImageDataset& data,
        const TrainOptions& options_in)
      : options(options_in),
        precision(amp::find_precision(options.precision)),
        model(std::move(model_in)),
        loader(data, {.batch_size = options.batch,
                      .drop_last = true,
                      .random_flip = options.augment,
                      .seed = options.seed}),
        optimizer(model->parameters(), torch::optim::SGDOptions(options.learning_rate)
                                           .momentum(options.momentum)
                                           .weight_decay(options.weight_decay)
                                           .nesterov(options.momentum > 0)),
        scaler({.init_scale = options.init_scale,
                .growth_interval = options.growth_interval,
                .enabled = precision.needs_scaler}) {}

  io::Batch next_batch() {
    std::optional<io::Batch> batch = loader.next();
    if (!batch) batch = loader.next();  // the end of an epoch
    return *std::move(batch);
  }

  at::Tensor forward_loss(const io::Batch& batch) {
    at::Tensor logits;
    {
      const auto dtype = precision.autocast_dtype.value_or(c10::kBFloat16);
      const amp::Autocast autocast(c10::kCPU, dtype, precision.autocast_dtype.has_value());
      logits = model->forward(batch.images);
    }
    return torch::nn::functional::cross_entropy(logits.to(torch::kFloat), batch.labels);
  }

  void set_learning_rate(double rate) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
  }

  io::CheckpointParts parts() {
    return {.model = model.get(), .optimizer = &optimizer, .config = options.to_json(), .extra = {}};
  }

  void check_config(const std::string& config) const {
    if (config != options.to_json()) {
      fail("train.Trainer.resume", "expected a checkpoint of a run with ", options.to_json(),
           ", got one with ", config);
    }
  }
};

Trainer::Trainer(std::shared_ptr<models::ImageModel> model, const io::ImageDataset& data,
                 const TrainOptions& options) {
  options.validate();
  if (options.batch > data.size()) {
    fail("train.Trainer", "expected a batch of at most ", data.size(), " images, got ", options.batch);
  }
  models::to_channels_last(*model);
  model->train();
  state_ = std::make_unique<State>(std::move(model), data, options);
  state_->steps_per_epoch = state_->loader.batches();
  state_->total_steps = state_->steps_per_epoch * options.epochs;
  if (options.max_steps > 0) state_->total_steps = options.max_steps;
}

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

StepInfo Trainer::step() {
  State& s = *state_;
  StepInfo info{.step = s.next_step, .epoch = s.next_step / s.steps_per_epoch, .scale = s.scaler.get_scale()};
  info.learning_rate = s.options.learning_rate * one_cycle(s.next_step, s.total_steps, s.options.warmup);
  s.set_learning_rate(info.learning_rate);
  s.optimizer.zero_grad();
  const at::Tensor loss = s.forward_loss(s.next_batch());
  s.scaler.scale(loss).backward();
  info.result = s.scaler.step(s.optimizer);
  if (s.scaler.is_enabled()) s.scaler.update();
  info.loss = loss.item<double>();
  if (!std::isfinite(info.loss)) {
    fail("train.Trainer.step", "expected a finite loss, got ", info.loss, " at step ", info.step,
         "; a smaller learning rate usually helps");
  }
  ++s.next_step;
  return info;
}

void Trainer::save(const std::filesystem::path& path) const {
  State& s = *state_;
  io::CheckpointParts parts = s.parts();
  parts.scaler = s.scaler.state_dict();
  parts.loader = s.loader.state();
  parts.step = s.next_step;
  parts.epoch = s.loader.epoch();
  io::save_checkpoint(path, parts);
}

void Trainer::resume(const std::filesystem::path& path) {
  State& s = *state_;
  s.check_config(io::read_checkpoint_info(path).config);
  io::CheckpointParts parts = s.parts();
  parts.scaler = s.scaler.state_dict();
  parts.loader = s.loader.state();
  io::load_checkpoint(path, parts);
  s.scaler.load_state_dict(parts.scaler);
  s.loader.restore(parts.loader);
  s.next_step = parts.step;
}

}  // namespace ulp::train
