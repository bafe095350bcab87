// Steps on a device by LibTorch's operators: its fused optimizers, or foreach operators where it has none.
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cmath>
#include <map>
#include <tuple>

#include "ulp/amp/optimizer/device/device_updater.h"
#include "ulp/amp/optimizer/state_memory.h"

namespace ulp::amp {

namespace {

/// Parameters that one call updates: of one group, with one count of steps behind them.
struct OpsBatch {
  std::vector<at::Tensor> weights, gradients, first, second, parameters;
  std::vector<size_t> entries;
  bool first_step = false;  ///< the momentum buffers have had no gradient yet
};
/// Group, step of the batch, whether its momentum buffers are new.
using BatchKey = std::tuple<size_t, int64_t, bool>;

/// fp32 without dimensions that gradients are divided by; nothing where they stay as they are.
using GradScale = std::optional<at::Tensor>;

class OpsUpdater : public DeviceUpdater {
 public:
  explicit OpsUpdater(bool fused) : fused_(fused) {}

  DeviceUpdate kind() const override { return fused_ ? DeviceUpdate::fused_ops : DeviceUpdate::foreach_ops; }

  std::string problem(const at::Tensor& parameter, const FusedOptions& options) const override {
    const bool is_fp32 = parameter.scalar_type() == c10::kFloat;
    if (!is_fp32 && options.masters != MasterWeights::fp32)
      return std::string("expected fp32 masters for an update by LibTorch's operators, got ") +
             to_string(options.masters) + " ones";
    if (moment_format(options.moments, parameter.numel()) != MomentFormat::fp32)
      return std::string("expected fp32 moments for an update by LibTorch's operators, got ") +
             to_string(options.moments) + " ones";
    return {};
  }

  std::string problem(const GradientEntry& entry, const FusedOptions& options) const override {
    if (entry.mask.defined()) return "expected no mask for an update by LibTorch's operators, got one";
    return problem(entry.parameter, options);
  }

  at::Tensor square_sum(const std::vector<GradientEntry>& entries) override {
    std::vector<at::Tensor> norms;
    for (const GradientEntry& entry : entries) {
      if (entry.gradient.numel() != 0)  // each in fp64: no sum of squares of fp32 numbers is infinite there
        norms.push_back(at::linalg_vector_norm(entry.gradient, 2, {}, false, c10::kDouble));
    }
    if (norms.empty()) return at::zeros({}, at::TensorOptions(c10::kDouble).device(device_of(entries)));
    return at::stack(norms).square().sum();
  }

  void apply(FusedOptimizer& optimizer, const std::vector<GradientEntry>& entries, float inverse_scale,
             float clip) override {
    GradScale grad_scale;
    const double factor = static_cast<double>(inverse_scale) * static_cast<double>(clip);
    if (factor != 1) {
      grad_scale = at::full({}, static_cast<float>(1 / factor),
                            at::TensorOptions(c10::kFloat).device(device_of(entries)));
    }
    for (auto& [key, batch] : batches(optimizer, entries)) update(optimizer, key, batch, grad_scale);
  }

 private:
  static c10::Device device_of(const std::vector<GradientEntry>& entries) {
    return entries.empty() ? c10::Device(c10::kCPU) : entries.front().parameter.device();
  }

  /// The entries by what one call can update, with state made where there is none.
  static std::map<BatchKey, OpsBatch> batches(FusedOptimizer& optimizer,
                                              const std::vector<GradientEntry>& entries) {
    std::map<BatchKey, OpsBatch> result;
    for (size_t i = 0; i < entries.size(); ++i) {
      const GradientEntry& entry = entries[i];
      const FusedOptions& options = options_of(optimizer.param_groups()[entry.group]);
      FusedParamState& state = state_for(optimizer, entry.parameter);
      const auto* sgd = std::get_if<SgdRule>(&options.rule);
      const bool first_step = sgd != nullptr && !state.momentum_buffer.defined();
      kernels::UpdateStep numbers;
      prepare_update(optimizer, entry, numbers);  // makes the state
      if (entry.parameter.numel() == 0) continue;
      OpsBatch& batch = result[{entry.group, sgd != nullptr ? 0 : state.step + 1, first_step}];
      batch.first_step = first_step;
      batch.entries.push_back(i);
      batch.parameters.push_back(entry.parameter.detach());
      batch.weights.push_back(state.master.defined() ? state.master : entry.parameter.detach());
      batch.gradients.push_back(entry.gradient.detach().to(c10::kFloat));
      if (sgd == nullptr) {
        batch.first.push_back(state.exp_avg);
        batch.second.push_back(state.exp_avg_sq);
      } else if (sgd->momentum != 0) {
        batch.first.push_back(state.momentum_buffer);
      }
    }
    return result;
  }

  void update(FusedOptimizer& optimizer, const BatchKey& key, OpsBatch& batch,
              const GradScale& grad_scale) const {
    const FusedOptions& options = options_of(optimizer.param_groups()[std::get<0>(key)]);
    std::visit(
        [&](const auto& rule) {
          if (fused_) {
            fused_update(rule, std::get<1>(key), batch, grad_scale);
          } else {
            foreach_update(rule, std::get<1>(key), batch, grad_scale);
          }
        },
        options.rule);
    std::vector<at::Tensor> copies, masters;
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      if (batch.weights[i].is_same(batch.parameters[i]) ||
          batch.parameters[i].scalar_type() == batch.weights[i].scalar_type())
        continue;
      copies.push_back(batch.parameters[i]);
      masters.push_back(batch.weights[i]);
    }
    if (!copies.empty()) at::_foreach_copy_(copies, masters);
  }

  static void fused_update(const SgdRule& rule, int64_t, OpsBatch& batch, const GradScale& grad_scale) {
    at::_fused_sgd_(batch.weights, batch.gradients, batch.first, rule.weight_decay, rule.momentum, rule.lr,
                    rule.dampening, rule.nesterov, false, batch.first_step, grad_scale, {});
  }
  template <typename Rule>
  static void fused_update(const Rule& rule, int64_t step, OpsBatch& batch, const GradScale& grad_scale) {
    const at::Tensor count =
        at::full({}, static_cast<double>(step), batch.weights[0].options().requires_grad(false));
    const std::vector<at::Tensor> steps(batch.weights.size(), count);
    const auto call = [&](auto&& op) {
      op(batch.weights, batch.gradients, batch.first, batch.second, std::vector<at::Tensor>{}, steps, rule.lr,
         rule.beta1, rule.beta2, rule.weight_decay, rule.eps, false, false, grad_scale, GradScale());
    };
    if constexpr (std::is_same_v<Rule, AdamRule>) {
      call([](auto&&... args) { at::_fused_adam_(args...); });
    } else {
      call([](auto&&... args) { at::_fused_adamw_(args...); });
    }
  }

  /// The finished gradients, which are new tensors where they change.
  static std::vector<at::Tensor> finished(const OpsBatch& batch, const GradScale& grad_scale,
                                          double weight_decay) {
    std::vector<at::Tensor> gradients = batch.gradients;
    if (grad_scale) gradients = at::_foreach_mul(gradients, grad_scale->reciprocal());
    if (weight_decay != 0) gradients = at::_foreach_add(gradients, batch.weights, weight_decay);
    return gradients;
  }
  static void foreach_update(const SgdRule& rule, int64_t, OpsBatch& batch, const GradScale& grad_scale) {
    std::vector<at::Tensor> gradients = finished(batch, grad_scale, rule.weight_decay);
    if (rule.momentum != 0) {
      if (batch.first_step) {
        at::_foreach_copy_(batch.first, gradients);
      } else {
        at::_foreach_mul_(batch.first, rule.momentum);
        at::_foreach_add_(batch.first, gradients, 1 - rule.dampening);
      }
      gradients = rule.nesterov ? at::_foreach_add(gradients, batch.first, rule.momentum) : batch.first;
    }
    at::_foreach_add_(batch.weights, gradients, -rule.lr);
  }
  template <typename Rule>
  static void foreach_update(const Rule& rule, int64_t step, OpsBatch& batch, const GradScale& grad_scale) {
    const auto count = static_cast<double>(step);
    constexpr bool kDecoupled = std::is_same_v<Rule, AdamWRule>;
    const std::vector<at::Tensor> gradients = finished(batch, grad_scale, kDecoupled ? 0 : rule.weight_decay);
    if (kDecoupled && rule.weight_decay != 0)
      at::_foreach_mul_(batch.weights, 1 - rule.lr * rule.weight_decay);
    at::_foreach_mul_(batch.first, rule.beta1);
    at::_foreach_add_(batch.first, gradients, 1 - rule.beta1);
    at::_foreach_mul_(batch.second, rule.beta2);
    at::_foreach_addcmul_(batch.second, gradients, gradients, 1 - rule.beta2);
    std::vector<at::Tensor> roots = at::_foreach_sqrt(batch.second);
    at::_foreach_div_(roots, std::sqrt(1 - std::pow(rule.beta2, count)));
    at::_foreach_add_(roots, rule.eps);
    at::_foreach_addcdiv_(batch.weights, batch.first, roots, -rule.lr / (1 - std::pow(rule.beta1, count)));
  }

  bool fused_;
};

}  // namespace

bool has_fused_ops(c10::DeviceType type) {
  const auto key = c10::computeDispatchKey(c10::kFloat, c10::kStrided, c10::Device(type));
  for (const char* name : {"aten::_fused_adamw_", "aten::_fused_adam_", "aten::_fused_sgd_"}) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
    if (!op || !op->hasKernelForDispatchKey(key)) return false;
  }
  return true;
}

std::unique_ptr<DeviceUpdater> make_ops_updater(bool fused) {
  return std::make_unique<OpsUpdater>(fused);
}

}  // namespace ulp::amp
