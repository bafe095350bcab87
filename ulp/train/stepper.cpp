#include "ulp/train/stepper.h"

#include <torch/torch.h>

#include "ulp/amp/precision.h"

namespace ulp::train {

namespace {

namespace optim = torch::optim;

std::unique_ptr<optim::Optimizer> make_optimizer(torch::nn::Module& model, const TrainOptions& options) {
  const double rate = options.peak_rate();
  if (options.optimizer == "adam") {
    return std::make_unique<optim::Adam>(model.parameters(),
                                         optim::AdamOptions(rate).weight_decay(options.decay()));
  }
  if (options.optimizer == "adamw") {
    return std::make_unique<optim::AdamW>(model.parameters(),
                                          optim::AdamWOptions(rate).weight_decay(options.decay()));
  }
  return std::make_unique<optim::SGD>(model.parameters(), optim::SGDOptions(rate)
                                                              .momentum(options.momentum)
                                                              .weight_decay(options.decay())
                                                              .nesterov(options.momentum > 0));
}

std::vector<at::Tensor> all_parameters(optim::Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (auto& group : optimizer.param_groups())
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

}  // namespace

Stepper::Stepper(torch::nn::Module& model, const TrainOptions& options)
    : optimizer_(make_optimizer(model, options)),
      scaler_({.init_scale = options.init_scale,
               .growth_interval = options.growth_interval,
               .enabled = amp::find_precision(options.precision).needs_scaler}),
      clip_(options.clip) {}

Stepper::~Stepper() = default;

void Stepper::set_learning_rate(double rate) {
  for (auto& group : optimizer_->param_groups()) group.options().set_lr(rate);
}

void Stepper::zero_grad() {
  optimizer_->zero_grad();
}

void Stepper::backward(const at::Tensor& loss, int64_t of) {
  scaler_.scale(of == 1 ? loss : loss / of).backward();
}

Update Stepper::step() {
  Update update;
  if (clip_) {
    scaler_.unscale_(*optimizer_);
    update.grad_norm = torch::nn::utils::clip_grad_norm_(all_parameters(*optimizer_), *clip_);
  }
  update.result = scaler_.step(*optimizer_);
  if (scaler_.is_enabled()) scaler_.update();
  return update;
}

void Stepper::add_to(io::CheckpointParts& parts) {
  parts.optimizer = optimizer_.get();
  parts.scaler = scaler_.state_dict();
}

void Stepper::restore(const io::CheckpointParts& parts) {
  scaler_.load_state_dict(parts.scaler);
}

}  // namespace ulp::train
