#include "ulp/train/stepper.h"

#include <torch/nn/module.h>
#include <torch/optim.h>
#include <torch/types.h>

#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/scaling/make_scaler.h"
#include "ulp/base/error.h"

namespace ulp::train {

namespace {

namespace optim = torch::optim;

amp::UpdateRule update_rule(const TrainOptions& options) {
  const double rate = options.peak_rate();
  if (options.optimizer == "adam") return amp::AdamRule{.lr = rate, .weight_decay = options.decay()};
  if (options.optimizer == "adamw") return amp::AdamWRule{.lr = rate, .weight_decay = options.decay()};
  return amp::SgdRule{.lr = rate,
                      .momentum = options.momentum,
                      .weight_decay = options.decay(),
                      .nesterov = options.momentum > 0};
}

std::unique_ptr<optim::Optimizer> torch_optimizer(std::vector<at::Tensor> parameters,
                                                  const TrainOptions& options) {
  const double rate = options.peak_rate(), decay = options.decay();
  if (options.optimizer == "adam")
    return std::make_unique<optim::Adam>(std::move(parameters), optim::AdamOptions(rate).weight_decay(decay));
  if (options.optimizer == "adamw")
    return std::make_unique<optim::AdamW>(std::move(parameters),
                                          optim::AdamWOptions(rate).weight_decay(decay));
  return std::make_unique<optim::SGD>(
      std::move(parameters),
      optim::SGDOptions(rate).momentum(options.momentum).weight_decay(decay).nesterov(options.momentum > 0));
}

std::unique_ptr<optim::Optimizer> make_optimizer(torch::nn::Module& model, const TrainOptions& options) {
  const auto masters = options.master_weights();
  if (!masters && !options.clip) return torch_optimizer(model.parameters(), options);
  return std::make_unique<amp::FusedOptimizer>(model.parameters(), update_rule(options),
                                               masters.value_or(amp::MasterWeights::fp32), options.seed,
                                               amp::find_moments(options.moments));
}

}  // namespace

Stepper::Stepper(torch::nn::Module& model, const TrainOptions& options, int64_t total_steps)
    : optimizer_(make_optimizer(model, options)),
      fused_(dynamic_cast<amp::FusedOptimizer*>(optimizer_.get())),
      scaler_(amp::make_scaler(options.scaler_name(), {.init_scale = options.init_scale,
                                                       .growth_interval = options.growth_interval})),
      clip_(options.clip),
      peak_rate_(options.peak_rate()),
      schedule_(*optimizer_, amp::make_schedule_rule(options.schedule, total_steps, options.warmup)) {}

Stepper::~Stepper() = default;

void Stepper::zero_grad() {
  optimizer_->zero_grad();
}

void Stepper::backward(const at::Tensor& loss, int64_t of) {
  scaler_.scale(of == 1 ? loss : loss / of).backward();
}

Update Stepper::step() {
  Update update;
  if (fused_ != nullptr) {
    const amp::FusedStepResult done = amp::fused_step(*fused_, &scaler_, {.max_norm = clip_});
    update.result = done.result;
    if (clip_) update.grad_norm = done.grad_norm;
  } else {
    update.result = scaler_.step(*optimizer_);
  }
  if (scaler_.is_enabled()) scaler_.update();
  schedule_.advance(update.result);
  return update;
}

void Stepper::add_to(io::CheckpointParts& parts) {
  parts.optimizer = optimizer_.get();
  parts.scaler = scaler_.state_dict();
  parts.schedule = schedule_.state_dict();
}

void Stepper::restore(const io::CheckpointParts& parts, const std::filesystem::path& path) {
  try {
    scaler_.load_state_dict(parts.scaler);
    schedule_.load_state_dict(parts.schedule);
  } catch (const Error& error) {
    fail_file("train.Trainer.resume", "the loss scale or the schedule in '", path.string(),
              "': ", error.what());
  }
}

}  // namespace ulp::train
