#include "ulp/amp/optimizer/fused_plan.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "ulp/amp/optimizer/device/device_updater.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/optimizer/host_copies.h"
#include "ulp/amp/optimizer/moment_store.h"
#include "ulp/amp/optimizer/state_memory.h"
#include "ulp/base/error.h"
#include "ulp/kernels/training/optimizer.h"
#include "ulp/libtorch/data_types.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::amp {

FusedParamState& state_for(FusedOptimizer& optimizer, const at::Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<FusedParamState>();
  return static_cast<FusedParamState&>(*state);
}

c10::Device device_of(FusedOptimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (!group.params().empty()) return group.params().front().device();
  }
  return c10::kCPU;
}

kernels::OptimizerTensor gradient_tensor(const GradientEntry& entry) {
  kernels::OptimizerTensor tensor;
  tensor.size = entry.parameter.numel();
  tensor.gradient = entry.gradient.const_data_ptr();
  tensor.gradient_type = libtorch::data_type_of(entry.gradient.scalar_type()).value();
  if (entry.mask.defined()) tensor.mask = entry.mask.const_data_ptr<uint8_t>();
  return tensor;
}

namespace {

using kernels::OptimizerTensor;
using kernels::UpdateKind;
using kernels::UpdateStep;
using kernels::WeightStore;

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
    fail(kFusedOptimizerWhere, "expected dense gradients, got a ", gradient.layout(), " one for ",
         parameter_name(group, index), " (build the embedding with sparse=false)");
  }
  if (gradient.device() != parameter.device() || !is_float(gradient) ||
      gradient.sizes() != parameter.sizes()) {
    fail(kFusedOptimizerWhere, "expected an fp32, bf16 or fp16 gradient of shape ", parameter.sizes(), " on ",
         parameter.device(), ", got one of ", gradient.dtype(), ' ', gradient.sizes(), " on ",
         gradient.device(), " for ", parameter_name(group, index));
  }
}

void check_state_of(FusedParamState state, const GradientEntry& of, const FusedOptions& options) {
  const std::string name = parameter_name(of.group, of.index);
  const auto check_type = [&](const at::Tensor& buffer, c10::ScalarType type) {
    if (buffer.scalar_type() == type) return;
    fail(kFusedOptimizerWhere, "expected state of type ", type, " for these options, got ", buffer.dtype(),
         " for ", name);
  };
  const auto check_layout = [&](const at::Tensor& buffer) {
    if (buffer.sizes() == of.parameter.sizes() && same_layout(buffer, of.parameter)) return;
    fail(kFusedOptimizerWhere, "expected ", name, " as it was at its first step, of sizes ", buffer.sizes(),
         " and strides ", buffer.strides(), ", got ", of.parameter.sizes(), " and ", of.parameter.strides());
  };
  for_each_moment(state, [&](const MomentTensors& moment) {
    if (!moment.values.defined()) return;
    const int64_t n = of.parameter.numel();
    const bool packed = moment_format(options.moments, n) == MomentFormat::int4;
    if (!packed && moment.values.sizes() != of.parameter.sizes()) check_layout(moment.values);
    check_type(moment.values, moment_type(options.moments, n));
    if (!packed) check_layout(moment.values);
    if (const std::string problem = moment_problem(moment, options.moments, of.parameter); !problem.empty())
      fail(kFusedOptimizerWhere, problem, " for '", moment.name, "' of ", name);
  });
  if (!state.memory_order.empty() && state.memory_order != memory_order(of.parameter)) {
    fail(kFusedOptimizerWhere, "expected ", name, " in the order of memory ", state.memory_order,
         " of its first step, got ", memory_order(of.parameter));
  }
  const auto master = master_type(of.parameter.scalar_type(), options.masters);
  if (!state.master.defined() || !master) return;
  check_type(state.master, *master);
  check_layout(state.master);
}

/// The master's memory; it is made from the parameter if it is not there yet.
void* master_data(at::Tensor& master, const at::Tensor& parameter, MasterWeights masters,
                  const StateMemory& memory) {
  const auto type = master_type(parameter.scalar_type(), masters);
  if (!type) return nullptr;
  if (!master.defined()) {
    master = memory.zeros(parameter, *type);
    if (*type == c10::kFloat) master.copy_(parameter);
  }
  return master.data_ptr();
}

/// What give_state() needs of one parameter.
struct Prepared {
  FusedParamState& state;
  const at::Tensor& parameter;  ///< on the host
  const StateMemory& memory;
};

/// Gives the kernel the moments of a state that `wanted` names; they are made where they are not there yet.
void give_moments(const Prepared& of, std::initializer_list<const at::Tensor*> wanted,
                  OptimizerTensor& tensor) {
  for_each_moment(of.state, [&](const MomentTensors& moment) {
    if (std::ranges::find(wanted, &moment.values) == wanted.end()) return;
    if (!moment.values.defined()) make_moment(moment, tensor.moments, of.parameter, of.memory);
    float* absmax = moment.absmax.defined() ? moment.absmax.data_ptr<float>() : nullptr;
    if (absmax != nullptr) of.state.memory_order = memory_order(of.parameter);
    (moment.squares ? tensor.second : tensor.first) = moment.values.data_ptr();
    (moment.squares ? tensor.second_absmax : tensor.first_absmax) = absmax;
  });
}

void write_numbers(const SgdRule& rule, int64_t, UpdateStep& step) {
  step.negative_lr = static_cast<float>(-rule.lr);
  step.weight_decay = static_cast<float>(rule.weight_decay);
  if (rule.momentum == 0) return;
  step.kind = UpdateKind::sgd_momentum;
  step.momentum = static_cast<float>(rule.momentum);
  step.one_minus_dampening = static_cast<float>(1 - rule.dampening);
  step.nesterov = rule.nesterov;
}

template <typename Rule>
void write_numbers(const Rule& rule, int64_t number, UpdateStep& step) {
  const auto count = static_cast<double>(number);
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
}

/// The state that the rule works on.
void give_state(const SgdRule& rule, const Prepared& of, UpdateStep& step, OptimizerTensor& tensor) {
  if (rule.momentum == 0) return;
  step.first_step = !of.state.momentum_buffer.defined();
  give_moments(of, {&of.state.momentum_buffer}, tensor);
}

template <typename Rule>
void give_state(const Rule&, const Prepared& of, UpdateStep&, OptimizerTensor& tensor) {
  give_moments(of, {&of.state.exp_avg, &of.state.exp_avg_sq}, tensor);
}

at::Tensor mask_bits_of(const FusedOptimizer& optimizer, const GradientEntry& of) {
  const FusedMask* mask = optimizer.mask_of(of.parameter);
  if (mask == nullptr) return {};
  if (of.parameter.sizes() != mask->sizes || of.parameter.strides() != mask->strides) {
    fail(kFusedOptimizerWhere, "expected ", parameter_name(of.group, of.index),
         " as it was when its mask was set, of sizes ", at::IntArrayRef(mask->sizes), " and strides ",
         at::IntArrayRef(mask->strides), ", got ", of.parameter.sizes(), " and ", of.parameter.strides());
  }
  return mask->on_device.defined() ? mask->on_device : mask->bits;
}

/// Updates all parameters; those of another device bucket by bucket, as their gradients arrive.
void update_in_buckets(HostCopies* copies, const std::vector<GradientEntry>& entries,
                       const std::vector<OptimizerTensor>& tensors, float inverse_scale, float clip) {
  for (size_t begin = 0, end = 0; begin < entries.size(); begin = end) {
    while (end < entries.size() && entries[end].bucket == entries[begin].bucket) ++end;
    if (copies != nullptr) copies->wait(entries[begin].bucket);
    const std::vector<OptimizerTensor> bucket(tensors.begin() + static_cast<std::ptrdiff_t>(begin),
                                              tensors.begin() + static_cast<std::ptrdiff_t>(end));
    kernels::update_parameters(bucket, inverse_scale, clip, kernels::selected_isa(),
                               libtorch::TorchParallel());
    if (copies == nullptr) continue;
    for (size_t i = begin; i < end; ++i) copies->send_back(entries[i].parameter);
  }
}

}  // namespace

void check_state(const FusedParamState& state, const GradientEntry& of, const FusedOptions& options) {
  check_state_of(state, of, options);
}

at::Tensor mask_bits(const FusedOptimizer& optimizer, const GradientEntry& of) {
  return mask_bits_of(optimizer, of);
}

UpdateStep update_numbers(const UpdateRule& rule, int64_t count) {
  UpdateStep step;
  std::visit([&](const auto& chosen) { write_numbers(chosen, count, step); }, rule);
  return step;
}

OptimizerTensor prepare_update(FusedOptimizer& optimizer, const GradientEntry& entry, UpdateStep& step) {
  const FusedOptions& options = options_of(optimizer.param_groups()[entry.group]);
  FusedParamState& state = state_for(optimizer, entry.parameter);
  const int64_t count = state.step + 1;
  OptimizerTensor tensor = gradient_tensor(entry);
  tensor.store = store_of(entry.parameter, options.masters);
  tensor.parameter = entry.host.data_ptr();
  tensor.master = master_data(state.master, entry.host, options.masters, optimizer.state_memory());
  tensor.moments = moment_store(options.moments, tensor.size);
  step = update_numbers(options.rule, count);
  const Prepared of{state, entry.host, optimizer.state_memory()};
  std::visit([&](const auto& rule) { give_state(rule, of, step, tensor); }, options.rule);
  tensor.step = &step;
  const StateLocation* place = optimizer.location_of(entry.parameter);
  const StateLocation at = place != nullptr ? *place : StateLocation{entry.ordinal, 0};
  tensor.random = {optimizer.seed(), static_cast<uint64_t>(count) << 32 | at.ordinal};
  tensor.random_begin = at.begin;
  return tensor;
}

const FusedOptions& options_of(const torch::optim::OptimizerParamGroup& group) {
  const auto* options = dynamic_cast<const FusedOptions*>(&group.options());
  if (options == nullptr)
    fail(kFusedOptimizerWhere, "expected parameter groups with FusedOptions, got others");
  return *options;
}

std::string parameter_name(size_t group, size_t index) {
  return "parameter " + std::to_string(index) + " of group " + std::to_string(group);
}

void check_parameter(const at::Tensor& parameter, MasterWeights masters, bool elsewhere, size_t group,
                     size_t index) {
  if (!parameter.defined())
    fail(kFusedOptimizerWhere, "expected a tensor for ", parameter_name(group, index));
  if (!elsewhere && !parameter.device().is_cpu()) {
    fail(kFusedOptimizerWhere,
         "expected parameters on the CPU (an optimizer is made for the device of its parameters, or with ",
         "OffloadOptions::to_host), got ", parameter.device(), " for ", parameter_name(group, index));
  }
  if (!is_float(parameter) || !parameter.is_non_overlapping_and_dense()) {
    fail(kFusedOptimizerWhere, "expected fp32, bf16 or fp16 parameters that are dense in memory, got ",
         parameter.dtype(), " with sizes ", parameter.sizes(), " and strides ", parameter.strides(), " for ",
         parameter_name(group, index));
  }
  if (parameter.scalar_type() == c10::kHalf && masters != MasterWeights::fp32) {
    fail(kFusedOptimizerWhere, "expected bf16 parameters for ", to_string(masters), " masters, got fp16 for ",
         parameter_name(group, index));
  }
}

void check_apart(std::vector<ParameterMemory> parameters) {
  const auto begin = [](const ParameterMemory& one) {
    return static_cast<const char*>(one.parameter.const_data_ptr());
  };
  std::erase_if(parameters, [](const ParameterMemory& one) {
    return one.parameter.numel() == 0 || one.parameter.is_meta();  // which have no memory
  });
  std::ranges::sort(parameters, {}, begin);
  for (size_t i = 1; i < parameters.size(); ++i) {
    const ParameterMemory &one = parameters[i - 1], &other = parameters[i];
    if (begin(one) + one.parameter.nbytes() <= begin(other)) continue;
    fail(kFusedOptimizerWhere, "expected parameters without memory in common, got ",
         parameter_name(one.group, one.index), " and ", parameter_name(other.group, other.index),
         " over one another");
  }
}

namespace {

/// Throws for what the device's updater does not know.
void check_entry(const DeviceUpdater& updater, const GradientEntry& entry, const FusedOptions& options) {
  const std::string problem = updater.problem(entry, options);
  if (!problem.empty())
    fail(kFusedOptimizerWhere, problem, " for ", parameter_name(entry.group, entry.index));
}

}  // namespace

std::vector<GradientEntry> collect_gradients(FusedOptimizer& optimizer) {
  const at::NoGradGuard no_grad;
  std::vector<GradientEntry> entries;
  std::vector<ParameterMemory> memory;
  HostCopies* const copies = optimizer.host_copies();
  const DeviceUpdater* const updater = optimizer.device_updater();
  const bool elsewhere = copies != nullptr || updater != nullptr;
  uint32_t ordinal = 0;
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const FusedOptions& options = options_of(optimizer.param_groups()[group]);
    validate(options.rule);
    const auto& parameters = optimizer.param_groups()[group].params();
    for (size_t i = 0; i < parameters.size(); ++i, ++ordinal) {
      const at::Tensor& gradient = parameters[i].grad();
      if (!gradient.defined()) continue;
      check_parameter(parameters[i], options.masters, elsewhere, group, i);
      check_gradient(gradient, parameters[i], group, i);
      memory.push_back({parameters[i], group, i});
      GradientEntry& entry = entries.emplace_back(GradientEntry{group, i, ordinal, parameters[i], {}});
      const auto state = optimizer.state().find(parameters[i].unsafeGetTensorImpl());
      if (state != optimizer.state().end())
        check_state(static_cast<const FusedParamState&>(*state->second), entry, options);
      if (copies != nullptr && entries.size() == 1) copies->begin(parameters[i].device());
      entry.host = copies != nullptr ? copies->parameter(parameters[i]) : parameters[i];
      entry.gradient =
          copies != nullptr ? copies->fetch(parameters[i], gradient) : in_layout_of(parameters[i], gradient);
      if (copies != nullptr) entry.bucket = copies->bucket();
      entry.mask = mask_bits(optimizer, entry);
      if (updater != nullptr) check_entry(*updater, entry, options);
    }
  }
  if (copies != nullptr && !entries.empty()) copies->finish_fetching();
  check_apart(std::move(memory));
  return entries;
}

namespace {

double square_sum_of(const std::vector<GradientEntry>& entries) {
  std::vector<OptimizerTensor> tensors;
  for (const GradientEntry& entry : entries) tensors.push_back(gradient_tensor(entry));
  return kernels::gradient_square_sum(tensors, kernels::selected_isa(), libtorch::TorchParallel());
}

}  // namespace

double gradient_square_sum(FusedOptimizer& optimizer, const std::vector<GradientEntry>& entries) {
  if (DeviceUpdater* updater = optimizer.device_updater()) {
    const at::NoGradGuard no_grad;
    return updater->square_sum(entries).item<double>();  // the one place where a step waits for the device
  }
  if (HostCopies* copies = optimizer.host_copies()) copies->wait_for_all();
  return square_sum_of(entries);
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
  return square_sum_of(entries);
}

namespace {

void apply_on_host(FusedOptimizer& optimizer, const std::vector<GradientEntry>& entries, float inverse_scale,
                   float clip) {
  std::vector<UpdateStep> steps(entries.size());
  std::vector<OptimizerTensor> tensors;
  int64_t parameters = 0;
  for (const GradientEntry& entry : entries) parameters += entry.parameter.numel();
  for (size_t i = 0; i < entries.size(); ++i) {
    OptimizerTensor tensor = prepare_update(optimizer, entries[i], steps[i]);
    tensor.stream_copies = parameters > kCachedParameters;
    tensors.push_back(tensor);
  }
  update_in_buckets(optimizer.host_copies(), entries, tensors, inverse_scale, clip);
}

}  // namespace

void apply_gradients(FusedOptimizer& optimizer, const std::vector<GradientEntry>& entries,
                     float inverse_scale, float clip) {
  const at::NoGradGuard no_grad;
  if (DeviceUpdater* updater = optimizer.device_updater()) {
    updater->apply(optimizer, entries, inverse_scale, clip);
  } else {
    apply_on_host(optimizer, entries, inverse_scale, clip);
  }
  // Autograd and the autocast cache recognise changed values by their version.
  for (const GradientEntry& entry : entries) {
    state_for(optimizer, entry.parameter).step += 1;
    entry.parameter.unsafeGetTensorImpl()->bump_version();
  }
  if (HostCopies* copies = optimizer.host_copies()) copies->end();
}

}  // namespace ulp::amp
