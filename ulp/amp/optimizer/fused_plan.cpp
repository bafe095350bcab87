#include "ulp/amp/optimizer/fused_plan.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "ulp/amp/optimizer/large_pages.h"
#include "ulp/base/error.h"
#include "ulp/kernels/training/optimizer.h"
#include "ulp/libtorch/data_types.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::amp {

namespace {

using kernels::OptimizerTensor;
using kernels::UpdateKind;
using kernels::UpdateStep;
using kernels::WeightStore;

constexpr const char* kWhere = "amp.FusedOptimizer";

/// Above so many parameters their 16-bit copies (32 MiB) do not wait in a cache for the next forward pass.
constexpr int64_t kCachedParameters = 16 << 20;

WeightStore store_of(const at::Tensor& parameter, MasterWeights masters) {
  if (parameter.scalar_type() == c10::kFloat) return WeightStore::f32;
  switch (masters) {
    case MasterWeights::split:
      return WeightStore::bf16_split;
    case MasterWeights::stochastic:
      return WeightStore::bf16_stochastic;
    case MasterWeights::kahan:
      return WeightStore::bf16_kahan;
    default:
      return parameter.scalar_type() == c10::kHalf ? WeightStore::f16_master : WeightStore::bf16_master;
  }
}

bool is_float(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return type == c10::kFloat || type == c10::kBFloat16 || type == c10::kHalf;
}

/// Strides of dimensions of size 1 mean nothing.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

at::Tensor in_layout_of(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (same_layout(parameter, gradient) && !gradient.is_neg()) return gradient;
  return at::empty_like(parameter, parameter.options().dtype(gradient.scalar_type())).copy_(gradient);
}

void check_gradient(const at::Tensor& gradient, const at::Tensor& parameter, size_t group, size_t index) {
  if (gradient.layout() != c10::kStrided) {
    fail(kWhere, "expected dense gradients, got a ", gradient.layout(), " one for ",
         parameter_name(group, index), " (build the embedding with sparse=false)");
  }
  if (!gradient.device().is_cpu() || !is_float(gradient) || gradient.sizes() != parameter.sizes()) {
    fail(kWhere, "expected an fp32, bf16 or fp16 gradient of shape ", parameter.sizes(),
         " on the CPU, got one of ", gradient.dtype(), ' ', gradient.sizes(), " on ", gradient.device(),
         " for ", parameter_name(group, index));
  }
}

/// An error unless the next step can go on from the state: its types fit the options, its sizes the parameter.
void check_state(const FusedParamState& state, const GradientEntry& of, const FusedOptions& options) {
  const auto check = [&](const at::Tensor& buffer, std::optional<c10::ScalarType> type) {
    if (!buffer.defined() || !type) return;
    if (buffer.scalar_type() != *type) {
      fail(kWhere, "expected state of type ", *type, " for these options, got ", buffer.dtype(), " for ",
           parameter_name(of.group, of.index));
    }
    if (buffer.sizes() == of.parameter.sizes() && same_layout(buffer, of.parameter)) return;
    fail(kWhere, "expected ", parameter_name(of.group, of.index), " as it was at its first step, of sizes ",
         buffer.sizes(), " and strides ", buffer.strides(), ", got ", of.parameter.sizes(), " and ",
         of.parameter.strides());
  };
  check(state.momentum_buffer, moment_type(options.moments));
  check(state.exp_avg, moment_type(options.moments));
  check(state.exp_avg_sq, moment_type(options.moments));
  check(state.master, master_type(of.parameter.scalar_type(), options.masters));
}

/// The master's memory; it is made from the parameter if it is not there yet.
void* master_data(at::Tensor& master, const at::Tensor& parameter, MasterWeights masters) {
  const auto type = master_type(parameter.scalar_type(), masters);
  if (!type) return nullptr;
  if (!master.defined()) {
    master = zeros_on_large_pages(parameter, *type);
    if (*type == c10::kFloat) master.copy_(parameter);
  }
  return master.data_ptr();
}

FusedParamState& state_of(FusedOptimizer& optimizer, const at::Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<FusedParamState>();
  return static_cast<FusedParamState&>(*state);
}

/// The buffer's memory; it is made if it is not there yet.
void* buffer(at::Tensor& tensor, const at::Tensor& parameter, MomentFormat moments) {
  if (!tensor.defined()) tensor = zeros_on_large_pages(parameter, moment_type(moments));
  return tensor.data_ptr();
}

/// What prepare() needs of one parameter.
struct Prepared {
  FusedParamState& state;
  const at::Tensor& parameter;
  MomentFormat moments;
  int64_t count;  ///< of the step, from 1
};

/// The rule's numbers for the step, and the state it works on.
void prepare(const SgdRule& rule, const Prepared& of, UpdateStep& step, OptimizerTensor& tensor) {
  step.negative_lr = static_cast<float>(-rule.lr);
  step.weight_decay = static_cast<float>(rule.weight_decay);
  if (rule.momentum == 0) return;
  step.kind = UpdateKind::sgd_momentum;
  step.momentum = static_cast<float>(rule.momentum);
  step.one_minus_dampening = static_cast<float>(1 - rule.dampening);
  step.nesterov = rule.nesterov;
  step.first_step = !of.state.momentum_buffer.defined();
  tensor.first = buffer(of.state.momentum_buffer, of.parameter, of.moments);
}

template <typename Rule>
void prepare(const Rule& rule, const Prepared& of, UpdateStep& step, OptimizerTensor& tensor) {
  const auto count = static_cast<double>(of.count);
  step.beta1 = static_cast<float>(rule.beta1);
  step.one_minus_beta1 = static_cast<float>(1 - rule.beta1);
  step.beta2 = static_cast<float>(rule.beta2);
  step.one_minus_beta2 = static_cast<float>(1 - rule.beta2);
  step.eps = static_cast<float>(rule.eps);
  step.negative_step_size = static_cast<float>(-rule.lr / (1 - std::pow(rule.beta1, count)));
  step.sqrt_correction2 = static_cast<float>(std::sqrt(1 - std::pow(rule.beta2, count)));
  if constexpr (std::is_same_v<Rule, AdamRule>) {
    step.kind = UpdateKind::adam;
    step.weight_decay = static_cast<float>(rule.weight_decay);
  } else {
    step.kind = UpdateKind::adamw;
    step.decay = static_cast<float>(1 - rule.lr * rule.weight_decay);
  }
  tensor.first = buffer(of.state.exp_avg, of.parameter, of.moments);
  tensor.second = buffer(of.state.exp_avg_sq, of.parameter, of.moments);
}

/// The bits of the parameter's mask; an error where it was made for another shape or layout.
at::Tensor mask_bits(const FusedOptimizer& optimizer, const GradientEntry& of) {
  const FusedMask* mask = optimizer.mask_of(of.parameter);
  if (mask == nullptr) return {};
  if (of.parameter.sizes() != mask->sizes || of.parameter.strides() != mask->strides) {
    fail(kWhere, "expected ", parameter_name(of.group, of.index),
         " as it was when its mask was set, of sizes ", at::IntArrayRef(mask->sizes), " and strides ",
         at::IntArrayRef(mask->strides), ", got ", of.parameter.sizes(), " and ", of.parameter.strides());
  }
  return mask->bits;
}

OptimizerTensor gradient_tensor(const GradientEntry& entry) {
  OptimizerTensor tensor;
  tensor.size = entry.parameter.numel();
  tensor.gradient = entry.gradient.const_data_ptr();
  tensor.gradient_type = libtorch::data_type_of(entry.gradient.scalar_type()).value();
  if (entry.mask.defined()) tensor.mask = entry.mask.const_data_ptr<uint8_t>();
  return tensor;
}

}  // namespace

const FusedOptions& options_of(const torch::optim::OptimizerParamGroup& group) {
  const auto* options = dynamic_cast<const FusedOptions*>(&group.options());
  if (options == nullptr) fail(kWhere, "expected parameter groups with FusedOptions, got others");
  return *options;
}

std::string parameter_name(size_t group, size_t index) {
  return "parameter " + std::to_string(index) + " of group " + std::to_string(group);
}

void check_parameter(const at::Tensor& parameter, MasterWeights masters, size_t group, size_t index) {
  if (!parameter.defined()) fail(kWhere, "expected a tensor for ", parameter_name(group, index));
  if (!parameter.device().is_cpu()) {
    fail(kWhere, "expected parameters on the CPU (elsewhere use torch::optim with GradScaler), got ",
         parameter.device(), " for ", parameter_name(group, index));
  }
  if (!is_float(parameter) || !parameter.is_non_overlapping_and_dense()) {
    fail(kWhere, "expected fp32, bf16 or fp16 parameters that are dense in memory, got ", parameter.dtype(),
         " with sizes ", parameter.sizes(), " and strides ", parameter.strides(), " for ",
         parameter_name(group, index));
  }
  if (parameter.scalar_type() == c10::kHalf && masters != MasterWeights::fp32) {
    fail(kWhere, "expected bf16 parameters for ", to_string(masters), " masters, got fp16 for ",
         parameter_name(group, index));
  }
}

void check_apart(std::vector<ParameterMemory> parameters) {
  const auto begin = [](const ParameterMemory& one) {
    return static_cast<const char*>(one.parameter.const_data_ptr());
  };
  std::erase_if(parameters, [](const ParameterMemory& one) { return one.parameter.numel() == 0; });
  std::ranges::sort(parameters, {}, begin);
  for (size_t i = 1; i < parameters.size(); ++i) {
    const ParameterMemory &one = parameters[i - 1], &other = parameters[i];
    if (begin(one) + one.parameter.nbytes() <= begin(other)) continue;
    fail(kWhere, "expected parameters without memory in common, got ", parameter_name(one.group, one.index),
         " and ", parameter_name(other.group, other.index), " over one another");
  }
}

std::vector<GradientEntry> collect_gradients(FusedOptimizer& optimizer) {
  const at::NoGradGuard no_grad;
  std::vector<GradientEntry> entries;
  std::vector<ParameterMemory> memory;
  uint32_t ordinal = 0;
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const FusedOptions& options = options_of(optimizer.param_groups()[group]);
    validate(options.rule);
    const auto& parameters = optimizer.param_groups()[group].params();
    for (size_t i = 0; i < parameters.size(); ++i, ++ordinal) {
      const at::Tensor& gradient = parameters[i].grad();
      if (!gradient.defined()) continue;
      check_parameter(parameters[i], options.masters, group, i);
      check_gradient(gradient, parameters[i], group, i);
      memory.push_back({parameters[i], group, i});
      GradientEntry& entry = entries.emplace_back(GradientEntry{group, i, ordinal, parameters[i], {}});
      const auto state = optimizer.state().find(parameters[i].unsafeGetTensorImpl());
      if (state != optimizer.state().end())
        check_state(static_cast<const FusedParamState&>(*state->second), entry, options);
      entry.gradient = in_layout_of(parameters[i], gradient);
      entry.mask = mask_bits(optimizer, entry);
    }
  }
  check_apart(std::move(memory));
  return entries;
}

double gradient_square_sum(const std::vector<GradientEntry>& entries) {
  std::vector<OptimizerTensor> tensors;
  for (const GradientEntry& entry : entries) tensors.push_back(gradient_tensor(entry));
  return kernels::gradient_square_sum(tensors, kernels::selected_isa(), libtorch::TorchParallel());
}

double gradient_square_sum(const std::vector<at::Tensor>& gradients) {
  std::vector<GradientEntry> entries;
  for (size_t i = 0; i < gradients.size(); ++i) {
    check_gradient(gradients[i], gradients[i], 0, i);
    if (!gradients[i].is_non_overlapping_and_dense())
      fail("amp.gradient_square_sum", "expected gradients that are dense in memory, got strides ",
           gradients[i].strides());
    entries.push_back({0, i, 0, gradients[i], gradients[i]});
  }
  return gradient_square_sum(entries);
}

void apply_gradients(FusedOptimizer& optimizer, const std::vector<GradientEntry>& entries,
                     float inverse_scale, float clip) {
  const at::NoGradGuard no_grad;
  std::vector<UpdateStep> steps(entries.size());
  std::vector<OptimizerTensor> tensors;
  int64_t parameters = 0;
  for (const GradientEntry& entry : entries) parameters += entry.parameter.numel();
  for (size_t i = 0; i < entries.size(); ++i) {
    const GradientEntry& entry = entries[i];
    const FusedOptions& options = options_of(optimizer.param_groups()[entry.group]);
    FusedParamState& state = state_of(optimizer, entry.parameter);
    const int64_t count = state.step + 1;
    OptimizerTensor tensor = gradient_tensor(entry);
    tensor.store = store_of(entry.parameter, options.masters);
    tensor.parameter = entry.parameter.data_ptr();
    tensor.master = master_data(state.master, entry.parameter, options.masters);
    tensor.moments =
        options.moments == MomentFormat::fp32 ? kernels::MomentStore::f32 : kernels::MomentStore::bf16;
    tensor.stream_copies = parameters > kCachedParameters;
    const Prepared of{state, entry.parameter, options.moments, count};
    std::visit([&](const auto& rule) { prepare(rule, of, steps[i], tensor); }, options.rule);
    tensor.step = &steps[i];
    const FusedPlace* place = optimizer.place_of(entry.parameter);
    const FusedPlace at = place != nullptr ? *place : FusedPlace{entry.ordinal, 0};
    tensor.random = {optimizer.seed(), static_cast<uint64_t>(count) << 32 | at.ordinal};
    tensor.random_begin = at.begin;
    tensors.push_back(tensor);
  }
  kernels::update_parameters(tensors, inverse_scale, clip, kernels::selected_isa(),
                             libtorch::TorchParallel());
  // Autograd and the autocast cache recognise changed values by their version.
  for (const GradientEntry& entry : entries) {
    state_of(optimizer, entry.parameter).step += 1;
    entry.parameter.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace ulp::amp
