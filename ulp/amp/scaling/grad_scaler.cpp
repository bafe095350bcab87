#include "ulp/amp/scaling/grad_scaler.h"

#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <cmath>

#include "ulp/amp/scaling/unscale.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

float checked_scale(const char* where, double scale) {
  const auto rounded = static_cast<float>(scale);
  if (!(rounded > 0) || std::isinf(rounded))
    fail(where, "expected a scale > 0 that is finite in fp32, got ", scale);
  return rounded;
}

/// Scales of the dialects without a floor shrink to 0, one overflow after the other.
float saved_scale(const char* where, double scale, const ScalePolicy& policy) {
  const bool shrinks = !std::holds_alternative<StaticScale>(policy);
  return scale == 0 && shrinks ? 0.0f : checked_scale(where, scale);
}

ScalePolicy policy_of(const GradScalerOptions& options) {
  return PyTorchScale{options.growth_factor, options.backoff_factor, options.growth_interval};
}

}  // namespace

const char* to_string(StepResult result) {
  switch (result) {
    case StepResult::stepped:
      return "stepped";
    case StepResult::skipped_nonfinite:
      return "skipped_nonfinite";
    case StepResult::skipped_underflow:
      return "skipped_underflow";
    default:
      return "no_gradients";
  }
}

void GradScalerOptions::validate() const {
  checked_scale("amp.GradScaler", init_scale);
  std::visit([](const auto& policy) { policy.validate(); }, policy_of(*this));
}

GradScaler::GradScaler(const GradScalerOptions& options)
    : GradScaler(options.init_scale, policy_of(options), options.enabled) {}

GradScaler::GradScaler(double init_scale, ScalePolicy policy, bool enabled)
    : enabled_(enabled),
      scale_(enabled ? checked_scale("amp.GradScaler", init_scale) : 1.0f),
      policy_(policy) {
  if (enabled) std::visit([](const auto& chosen) { chosen.validate(); }, policy_);
}

void GradScaler::expect_scaled(const char* where) const {
  if (!scaled_) fail(where, "expected scale(loss) to have been called before, got none");
}

bool GradScaler::tests_unscaled() const {
  return std::visit([](const auto& policy) { return policy.kTestsUnscaled; }, policy_);
}

bool GradScaler::underflow() const {
  return std::isinf(inverse_scale());
}

at::Tensor GradScaler::scale(const at::Tensor& loss) {
  if (!enabled_) return loss;
  if (!loss.defined()) fail("amp.GradScaler.scale", "expected a tensor, got an undefined one");
  if (!loss.is_floating_point()) {
    fail("amp.GradScaler.scale", "expected a floating-point loss, got ", loss.dtype());
  }
  scaled_ = true;
  return loss * at::full({}, scale_, at::TensorOptions().dtype(c10::kFloat).device(loss.device()));
}

std::vector<at::Tensor> GradScaler::scale(const std::vector<at::Tensor>& losses) {
  std::vector<at::Tensor> scaled;
  for (const at::Tensor& loss : losses) scaled.push_back(scale(loss));
  return scaled;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!enabled_) return;
  constexpr const char* kWhere = "amp.GradScaler.unscale_";
  expect_scaled(kWhere);
  const auto seen = optimizers_.find(&optimizer);
  const Stage stage = seen == optimizers_.end() ? Stage::ready : seen->second.stage;
  if (stage == Stage::unscaled)
    fail(kWhere, "expected one call between two updates, got a second one for this optimizer");
  if (stage == Stage::stepped)
    fail(kWhere, "expected the call before step(), got it after step() of this optimizer");
  optimizers_[&optimizer] = {
      Stage::unscaled, unscale_gradients(optimizer, inverse_scale(), {.test_unscaled = tests_unscaled()})};
}

StepResult GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!enabled_) {
    optimizer.step();
    return StepResult::stepped;
  }
  constexpr const char* kWhere = "amp.GradScaler.step";
  expect_scaled(kWhere);
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr)
    fail(kWhere, "expected an optimizer that steps without a closure, got LBFGS");
  const auto seen = optimizers_.find(&optimizer);
  if (seen == optimizers_.end()) {
    unscale_(optimizer);
  } else if (seen->second.stage == Stage::stepped) {
    fail(kWhere, "expected one call between two updates, got a second one for this optimizer");
  }
  OptimizerState& state = optimizers_.at(&optimizer);
  if (state.nonfinite == false && !underflow()) optimizer.step();
  state.stage = Stage::stepped;
  if (!state.nonfinite) return StepResult::no_gradients;
  if (*state.nonfinite) return StepResult::skipped_nonfinite;
  return underflow() ? StepResult::skipped_underflow : StepResult::stepped;
}

StepResult GradScaler::step(torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& closure) {
  if (enabled_) fail("amp.GradScaler.step", "expected no closure while scaling is enabled, got one");
  optimizer.step(closure);
  return StepResult::stepped;
}

GradScaler::PendingStep GradScaler::begin_step(torch::optim::Optimizer& optimizer) {
  constexpr const char* kWhere = "amp.GradScaler.begin_step";
  expect_scaled(kWhere);
  if (inverse_scale() > 1 && tests_unscaled() && !optimizers_.contains(&optimizer)) unscale_(optimizer);
  const auto seen = optimizers_.find(&optimizer);
  if (seen == optimizers_.end()) return {inverse_scale(), std::nullopt, underflow()};
  if (seen->second.stage == Stage::stepped)
    fail(kWhere, "expected one step between two updates, got a second one for this optimizer");
  return {1.0f, seen->second.nonfinite.value_or(false), underflow()};
}

void GradScaler::end_step(const torch::optim::Optimizer& optimizer, StepResult result) {
  OptimizerState& state = optimizers_[&optimizer];
  if (result != StepResult::no_gradients) state.nonfinite = result == StepResult::skipped_nonfinite;
  state.stage = Stage::stepped;
}

void GradScaler::update() {
  if (!enabled_) return;
  expect_scaled("amp.GradScaler.update");
  if (optimizers_.empty())
    fail("amp.GradScaler.update", "expected unscale_() or step() since the last update, got none");
  bool has_gradients = false;
  bool nonfinite = false;
  for (const auto& [optimizer, state] : optimizers_) {
    has_gradients = has_gradients || state.nonfinite.has_value();
    nonfinite = nonfinite || state.nonfinite.value_or(false);
  }
  if (has_gradients)
    scale_ = std::visit([&](auto& policy) { return policy.next(scale_, nonfinite); }, policy_);
  optimizers_.clear();
}

void GradScaler::update(double new_scale) {
  if (!enabled_) return;
  expect_scaled("amp.GradScaler.update");
  scale_ = checked_scale("amp.GradScaler.update", new_scale);
  optimizers_.clear();
}

const char* GradScaler::dialect() const {
  return std::visit([](const auto& policy) { return policy.kName; }, policy_);
}

int64_t GradScaler::growth_tracker() const {
  return enabled_ ? std::visit([](const auto& policy) { return policy.counter(); }, policy_) : 0;
}

ScalerState GradScaler::state_dict() const {
  if (!enabled_) return {};
  ScalerState state = save_policy(policy_);
  state["scale"] = scale_;
  return state;
}

void GradScaler::load_state_dict(const ScalerState& state) {
  if (!enabled_) return;
  constexpr const char* kWhere = "amp.GradScaler.load_state_dict";
  if (state.empty())
    fail(kWhere, "expected the state of an enabled scaler, got an empty one (saved by a disabled scaler?)");
  const auto scale = state.find("scale");
  if (scale == state.end()) fail(kWhere, "expected an entry scale, got none (damaged)");
  const float loaded = saved_scale(kWhere, scale->second, policy_);
  ScalerState fields = state;
  fields.erase("scale");
  load_policy(policy_, fields);
  scale_ = loaded;
}

}  // namespace ulp::amp
