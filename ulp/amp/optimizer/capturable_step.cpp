#include "ulp/amp/optimizer/capturable_step.h"

#include <ATen/Functions.h>

#include <cmath>
#include <limits>

#include "ulp/amp/optimizer/device/device_table.h"
#include "ulp/amp/optimizer/device/device_updater.h"
#include "ulp/amp/optimizer/fused_plan.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

constexpr const char* kCapturableWhere = "amp.CapturableStep";

/// The numbers of at::_amp_update_scale_ for a dialect that it can compute.
struct DeviceGrowth {
  double growth = 1, backoff = 1;
  int64_t interval = 1;
  const char* counter = nullptr;  ///< its name in ScalerState; null: the scale is fixed
};

DeviceGrowth growth_of(const GradScaler& scaler) {
  if (const auto* torch = std::get_if<PyTorchScale>(&scaler.policy()))
    return {torch->growth_factor, torch->backoff_factor, torch->growth_interval, "_growth_tracker"};
  if (const auto* keras = std::get_if<Keras3Scale>(&scaler.policy()))
    return {2.0, 0.5, keras->dynamic_growth_steps, "step_counter"};
  if (std::holds_alternative<StaticScale>(scaler.policy())) return {};
  fail(kCapturableWhere, "expected a scaler of dialect pytorch, keras or static, got ", scaler.dialect());
}

}  // namespace

struct CapturableStep::Parts {
  Parts(FusedOptimizer& its_optimizer, GradScaler* its_scaler, const CapturableOptions& its_options)
      : optimizer(its_optimizer),
        scaler(its_scaler != nullptr && its_scaler->is_enabled() ? its_scaler : nullptr),
        options(its_options),
        device(device_of(its_optimizer)),
        growth(scaler != nullptr ? growth_of(*scaler) : DeviceGrowth{}) {
    take_scale();
  }

  FusedOptimizer& optimizer;
  GradScaler* scaler;
  CapturableOptions options;
  c10::Device device;
  DeviceGrowth growth;
  at::Tensor loss_scale, growth_tracker;           ///< fp32 [1], int32 [1]; undefined without a scaler
  at::Tensor control, found_inf, norm;             ///< of the last step: fp32 [3], fp32 [1], fp64
  std::optional<DeviceTable> table = {};           ///< of the parameters of the first step
  std::vector<GradientEntry> entries = {};         ///< of the last step: their gradients must stay
  std::vector<const c10::TensorImpl*> which = {};  ///< the parameters of the table
  bool capturing = false;

  at::TensorOptions of(c10::ScalarType type) const { return at::TensorOptions(type).device(device); }
  bool measures() const { return scaler != nullptr || options.max_norm || options.check_finite; }

  /// Scale and tracker as the scaler has them.
  void take_scale() {
    if (scaler == nullptr) return;
    loss_scale = at::full({1}, scaler->get_scale(), of(c10::kFloat));
    growth_tracker = at::full({1}, scaler->growth_tracker(), of(c10::kInt));
  }

  /// State, counts and the table of the first step.
  void start(const std::vector<GradientEntry>& now) {
    std::vector<int64_t> sizes, counts;
    std::vector<int32_t> first;
    for (const GradientEntry& entry : now) {
      const FusedParamState& state = state_for(optimizer, entry.parameter);
      sizes.push_back(entry.parameter.numel());
      counts.push_back(state.step);
      first.push_back(state.momentum_buffer.defined() ? 0 : 1);
      which.push_back(entry.parameter.unsafeGetTensorImpl());
    }
    table.emplace(*optimizer.device_updater()->launcher(), device, sizes);
    table->bind_counts(counts, first);
  }

  /// Addresses, rules and learning rates to the device.
  void bind() {
    std::vector<kernels::UpdateStep> steps(entries.size());
    std::vector<kernels::OptimizerTensor> tensors;
    std::vector<UpdateRule> rules;
    for (size_t i = 0; i < entries.size(); ++i) {
      tensors.push_back(prepare_update(optimizer, entries[i], steps[i]));
      rules.push_back(options_of(optimizer.param_groups()[entries[i].group]).rule);
    }
    table->bind(tensors);
    table->bind_rules(rules);
  }

  /// control, found_inf and norm from the gradients, in the order of fused_step().
  void judge() {
    found_inf = at::zeros({1}, of(c10::kFloat));
    if (!measures()) {
      norm = at::full({}, std::numeric_limits<double>::quiet_NaN(), of(c10::kDouble));
      control = at::ones({3}, of(c10::kFloat));
      control.select(0, 2).zero_();
      return;
    }
    const at::Tensor scaled_norm = table->norm();
    const at::Tensor nonfinite = scaled_norm.isfinite().logical_not();
    const at::Tensor inverse = scaler != nullptr
                                   ? loss_scale.select(0, 0).to(c10::kDouble).reciprocal().to(c10::kFloat)
                                   : at::ones({}, of(c10::kFloat));
    norm = scaled_norm * inverse.to(c10::kDouble);
    at::Tensor clip = at::ones({}, of(c10::kFloat));
    if (options.max_norm) {
      const at::Tensor most = at::full({}, *options.max_norm, of(c10::kDouble));
      clip = most.div(norm + 1e-6).clamp_max(1.0).to(c10::kFloat);
    }
    const at::Tensor skip = nonfinite.logical_or(inverse.isinf()).to(c10::kFloat);
    control = at::stack({inverse, clip, skip});
    found_inf.copy_(nonfinite.to(c10::kFloat).view({1}));
  }
};

CapturableStep::CapturableStep(FusedOptimizer& optimizer, GradScaler* scaler,
                               const CapturableOptions& options) {
  if (options.max_norm && !(*options.max_norm > 0))
    fail(kCapturableWhere, "expected max_norm > 0, got ", *options.max_norm);
  const DeviceUpdater* updater = optimizer.device_updater();
  if (updater == nullptr || updater->launcher() == nullptr)
    fail(kCapturableWhere, "expected an optimizer whose update is made by kernels on its device ",
         "(DeviceUpdate::kernels), got one of another kind");
  parts_ = std::make_unique<Parts>(optimizer, scaler, options);
}

CapturableStep::~CapturableStep() = default;

at::Tensor CapturableStep::scale(const at::Tensor& loss) const {
  if (!loss.defined() || !loss.is_floating_point() || loss.device() != parts_->device)
    fail(kCapturableWhere, "expected a floating-point loss on ", parts_->device, ", got another one");
  if (!parts_->table) parts_->take_scale();  // it may have changed since finish()
  return parts_->scaler == nullptr ? loss : loss * parts_->loss_scale.select(0, 0);
}

void CapturableStep::step() {
  const at::NoGradGuard no_grad;
  Parts& own = *parts_;
  std::vector<GradientEntry> entries = collect_gradients(own.optimizer);
  if (entries.empty()) return;
  if (!own.table) own.start(entries);
  std::vector<const c10::TensorImpl*> which;
  for (const GradientEntry& entry : entries) which.push_back(entry.parameter.unsafeGetTensorImpl());
  if (which != own.which)
    fail(kCapturableWhere, "expected gradients for the parameters of the first step, got them for others");
  own.entries = std::move(entries);
  if (!own.capturing) own.bind();
  own.judge();
  own.table->advance(own.control);
  own.table->update(own.control);
  if (own.growth.counter != nullptr) {
    at::_amp_update_scale_(own.loss_scale, own.growth_tracker, own.found_inf, own.growth.growth,
                           own.growth.backoff, own.growth.interval);
  }
  for (const GradientEntry& entry : own.entries) entry.parameter.unsafeGetTensorImpl()->bump_version();
}

void CapturableStep::begin_capture() {
  if (!parts_->table) fail(kCapturableWhere, "expected a step before begin_capture(), got none");
  parts_->capturing = true;
}

void CapturableStep::end_capture() {
  if (!parts_->capturing) fail(kCapturableWhere, "expected begin_capture() before end_capture(), got none");
  parts_->capturing = false;
  refresh();
}

void CapturableStep::refresh() {
  const at::NoGradGuard no_grad;
  if (parts_->table) parts_->bind();
}

CapturableState CapturableStep::read() const {
  const Parts& own = *parts_;
  CapturableState state{.grad_norm = std::numeric_limits<double>::quiet_NaN()};
  if (own.scaler != nullptr) state.scale = own.loss_scale.item<double>();
  if (!own.control.defined()) return state;
  state.found_inf = own.found_inf.item<float>() != 0;
  state.skipped = own.control.select(0, 2).item<float>() != 0;
  state.grad_norm = own.norm.item<double>();
  return state;
}

void CapturableStep::finish() {
  Parts& own = *parts_;
  if (own.capturing) fail(kCapturableWhere, "expected end_capture() before finish(), got none");
  if (own.table) {
    const at::Tensor steps = own.table->steps().cpu(), first = own.table->first().cpu();
    for (size_t i = 0; i < own.entries.size(); ++i) {
      FusedParamState& state = state_for(own.optimizer, own.entries[i].parameter);
      const auto place = static_cast<int64_t>(i);
      state.step = steps.const_data_ptr<int64_t>()[place];
      // A buffer that has had no gradient is one that is not there yet.
      if (first.const_data_ptr<int32_t>()[place] != 0 && state.momentum_buffer.defined()) {
        state.momentum_buffer.reset();
        state.momentum_buffer_absmax.reset();
      }
    }
    own.table.reset();
    own.which.clear();
    own.entries.clear();
  }
  if (own.scaler == nullptr) return;
  ScalerState state = own.scaler->state_dict();
  state["scale"] = own.loss_scale.item<double>();
  if (own.growth.counter != nullptr) state[own.growth.counter] = own.growth_tracker.item<int>();
  own.scaler->load_state_dict(state);
}

}  // namespace ulp::amp
