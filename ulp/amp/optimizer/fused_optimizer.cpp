#include "ulp/amp/optimizer/fused_optimizer.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <unordered_set>

#include "ulp/amp/optimizer/block_moments.h"
#include "ulp/amp/optimizer/device/device_updater.h"
#include "ulp/amp/optimizer/fused_plan.h"
#include "ulp/amp/optimizer/host_copies.h"
#include "ulp/amp/optimizer/state_memory.h"
#include "ulp/base/error.h"
#include "ulp/libtorch/bit_mask.h"

namespace ulp::amp {

namespace {

/// The parameters, those that are listed again left out.
std::vector<at::Tensor> each_once(const std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : params) {
    if (!parameter.defined() || seen.insert(parameter.unsafeGetTensorImpl()).second)
      result.push_back(parameter);
  }
  return result;
}

/// The device on which the update is made; the CPU for none.
c10::Device device_of(const std::vector<FusedGroup>& groups) {
  for (const FusedGroup& group : groups) {
    for (const at::Tensor& parameter : group.params)
      if (parameter.defined()) return parameter.device();
  }
  return c10::kCPU;
}

/// Whether a device updates its parameters itself.
bool is_on_device(const std::vector<FusedGroup>& groups, const OffloadOptions& offload) {
  return !offload.to_host && (offload.update != DeviceUpdate::automatic || !device_of(groups).is_cpu());
}

/// Throws for what an updater does not know; `missing`: why it is not the one that knows all.
void check_device(const DeviceUpdater* updater, const std::vector<FusedGroup>& groups,
                  const std::string& missing = {}) {
  for (size_t g = 0; updater != nullptr && g < groups.size(); ++g) {
    const FusedOptions options(groups[g].rule, groups[g].masters, groups[g].moments);
    for (size_t i = 0; i < groups[g].params.size(); ++i) {
      const std::string problem = updater->problem(groups[g].params[i], options);
      if (problem.empty()) continue;
      fail(kFusedOptimizerWhere, problem, " for ", parameter_name(g, i),
           missing.empty() ? "" : " (there are no kernels for it: " + missing + ")");
    }
  }
}

std::unique_ptr<DeviceUpdater> updater_for(const std::vector<FusedGroup>& groups,
                                           const OffloadOptions& offload) {
  if (!is_on_device(groups, offload)) return nullptr;
  std::string missing;
  auto updater = make_device_updater(offload.update, device_of(groups), &missing);
  check_device(updater.get(), groups, missing);
  return updater;
}

/// What all parameters of an optimizer must be.
void check_groups(const std::vector<FusedGroup>& groups, bool to_host) {
  std::vector<ParameterMemory> extents;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (size_t g = 0; g < groups.size(); ++g) {
    validate(groups[g].rule);
    for (size_t i = 0; i < groups[g].params.size(); ++i) {
      const at::Tensor& parameter = groups[g].params[i];
      check_parameter(parameter, groups[g].masters, to_host, g, i);
      if (!seen.insert(parameter.unsafeGetTensorImpl()).second)
        fail(kFusedOptimizerWhere, "expected each parameter once, got ", parameter_name(g, i),
             " a second time");
      if (!extents.empty() && extents.front().parameter.device() != parameter.device()) {
        fail(kFusedOptimizerWhere, "expected parameters on one device, got ", parameter_name(g, i), " on ",
             parameter.device(), " and others on ", extents.front().parameter.device());
      }
      extents.push_back({parameter, g, i});
    }
  }
  if (seen.empty()) fail(kFusedOptimizerWhere, "expected at least one parameter, got none");
  check_apart(std::move(extents));
}

std::vector<torch::optim::OptimizerParamGroup> checked(const std::vector<FusedGroup>& groups,
                                                       const OffloadOptions& offload) {
  if (groups.empty()) fail(kFusedOptimizerWhere, "expected at least one parameter group, got none");
  if (offload.bucket_bytes <= 0)
    fail(kFusedOptimizerWhere, "expected bucket_bytes > 0, got ", offload.bucket_bytes);
  std::vector<FusedGroup> unique = groups;
  for (FusedGroup& group : unique) group.params = each_once(group.params);
  if (offload.to_host && offload.update != DeviceUpdate::automatic)
    fail(kFusedOptimizerWhere, "expected to_host or an update on the device, got both");
  const bool on_device = is_on_device(unique, offload);
  if (on_device && !offload.state_folder.empty())
    fail(kFusedOptimizerWhere, "expected state in files with OffloadOptions::to_host or on the CPU, got ",
         "state_folder for an update on ", device_of(unique));
  check_groups(unique, offload.to_host || on_device);
  std::vector<torch::optim::OptimizerParamGroup> result;
  for (const FusedGroup& group : unique) result.emplace_back(group.params);
  return result;
}

std::vector<FusedGroup> one_group(std::vector<at::Tensor> params, UpdateRule rule, MasterWeights masters,
                                  MomentFormat moments) {
  std::vector<FusedGroup> groups;
  groups.push_back({std::move(params), rule, masters, moments});
  return groups;
}

void expect_parameter(const char* where, const FusedOptimizer& optimizer, const at::Tensor& parameter) {
  const auto is_it = [&](const at::Tensor& own) { return own.is_same(parameter); };
  for (const auto& group : optimizer.param_groups()) {
    if (std::ranges::any_of(group.params(), is_it)) return;
  }
  fail(where, "expected a parameter of this optimizer, got another tensor");
}

/// (parameter << 16) + low as the bits of a float.
at::Tensor join_halves(const at::Tensor& parameter, const at::Tensor& low) {
  const at::Tensor high = parameter.view(c10::kShort).to(c10::kInt) * 65536;
  return (high + low.to(c10::kInt)).view(c10::kFloat);
}

}  // namespace

double FusedOptions::get_lr() const {
  return std::visit([](const auto& chosen) { return chosen.lr; }, rule);
}

void FusedOptions::set_lr(double lr) {
  std::visit([lr](auto& chosen) { chosen.lr = lr; }, rule);
}

std::vector<FusedGroup> with_fp32_moments(const std::vector<FusedGroup>& groups,
                                          const std::vector<at::Tensor>& parameters) {
  std::vector<FusedGroup> result;
  for (const FusedGroup& group : groups) {
    FusedGroup narrow = group, wide = group;
    wide.moments = MomentFormat::fp32;
    narrow.params.clear();
    wide.params.clear();
    for (const at::Tensor& parameter : group.params) {
      const auto is_it = [&](const at::Tensor& one) { return one.is_same(parameter); };
      (std::ranges::any_of(parameters, is_it) ? wide : narrow).params.push_back(parameter);
    }
    if (!narrow.params.empty()) result.push_back(std::move(narrow));
    if (!wide.params.empty()) result.push_back(std::move(wide));
  }
  return result;
}

FusedOptimizer::FusedOptimizer(std::vector<at::Tensor> params, UpdateRule rule, MasterWeights masters,
                               uint64_t seed, MomentFormat moments)
    : FusedOptimizer(one_group(std::move(params), rule, masters, moments), seed) {}

FusedOptimizer::FusedOptimizer(const std::vector<FusedGroup>& groups, uint64_t seed,
                               const OffloadOptions& offload)
    : Optimizer(checked(groups, offload), std::make_unique<FusedOptions>()),
      seed_(seed),
      host_copies_(offload.to_host ? std::make_unique<HostCopies>(offload.bucket_bytes) : nullptr),
      state_memory_(std::make_unique<StateMemory>(
          offload.state_folder, is_on_device(groups, offload) ? device_of(groups) : c10::kCPU)),
      device_updater_(updater_for(groups, offload)) {
  // Set here, because add_param_group() keeps the options of LibTorch's own optimizers only.
  const auto options = [](const FusedGroup& group) {
    return std::make_unique<FusedOptions>(group.rule, group.masters, group.moments);
  };
  for (size_t g = 0; g < groups.size(); ++g) param_groups_[g].set_options(options(groups[g]));
  defaults_ = options(groups.front());
}

FusedOptimizer::~FusedOptimizer() = default;

void FusedOptimizer::settle_state() {
  for (auto& entry : state()) {
    auto& its = static_cast<FusedParamState&>(*entry.second);
    for_each_moment(its, [&](const MomentTensors& moment) {
      state_memory_->move(moment.values);
      state_memory_->move(moment.absmax);
    });
    state_memory_->move(its.master);
  }
}

void FusedOptimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  const FusedOptions options =
      group.has_options() ? options_of(group) : static_cast<const FusedOptions&>(defaults());
  std::vector<FusedGroup> all;
  for (const auto& own : param_groups()) {
    const FusedOptions& its = options_of(own);
    all.push_back({own.params(), its.rule, its.masters, its.moments});
  }
  all.push_back({each_once(group.params()), options.rule, options.masters, options.moments});
  check_groups(all, host_copies_ != nullptr || device_updater_ != nullptr);
  check_device(device_updater_.get(), {all.back()});
  Optimizer::add_param_group(torch::optim::OptimizerParamGroup(all.back().params));
  param_groups_.back().set_options(std::make_unique<FusedOptions>(options));
}

void FusedOptimizer::save(torch::serialize::OutputArchive&) const {
  fail("amp.FusedOptimizer.save",
       "expected io::save_checkpoint, which keeps all of the state, got torch::save");
}

void FusedOptimizer::load(torch::serialize::InputArchive&) {
  fail("amp.FusedOptimizer.load", "expected io::load_checkpoint, got torch::load");
}

at::Tensor FusedOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode grad_mode(true);
    loss = closure();
  }
  apply_gradients(*this, collect_gradients(*this), 1.0f, 1.0f);
  return loss;
}

at::Tensor FusedOptimizer::master_weight(const at::Tensor& parameter) const {
  const at::NoGradGuard no_grad;
  for (const auto& group : param_groups()) {
    for (const at::Tensor& own : group.params()) {
      if (!own.is_same(parameter)) continue;
      const auto found = state().find(own.unsafeGetTensorImpl());
      const at::Tensor weight = own.detach().cpu();
      if (found == state().end()) return weight.to(c10::kFloat);
      at::Tensor master = static_cast<const FusedParamState&>(*found->second).master;
      if (!master.defined()) return weight.to(c10::kFloat);
      master = master.cpu();
      if (master.sizes() != weight.sizes()) {
        fail("amp.FusedOptimizer.master_weight", "expected a parameter of the sizes ", master.sizes(),
             " of its master, got ", weight.sizes());
      }
      if (master.scalar_type() == c10::kFloat) return master;
      if (master.scalar_type() == c10::kShort) return join_halves(weight, master);
      return weight.to(c10::kFloat) + master.to(c10::kFloat);
    }
  }
  fail("amp.FusedOptimizer.master_weight", "expected a parameter of this optimizer, got another tensor");
}

void FusedOptimizer::set_mask(const at::Tensor& parameter, const at::Tensor& bits) {
  constexpr const char* kSetMask = "amp.FusedOptimizer.set_mask";
  expect_parameter(kSetMask, *this, parameter);
  libtorch::check_mask(kSetMask, "a mask", bits, parameter.numel());
  const at::NoGradGuard no_grad;
  FusedMask mask{libtorch::mask_in_memory_order(bits, parameter.sizes(), parameter.strides()).clone(),
                 parameter.sizes().vec(), parameter.strides().vec()};
  if (device_updater_ != nullptr) mask.on_device = mask.bits.to(parameter.device());
  const auto found = state().find(parameter.unsafeGetTensorImpl());
  if (found != state().end()) {
    auto& its = static_cast<FusedParamState&>(*found->second);
    const at::Tensor held = libtorch::unpack_mask(bits, parameter.sizes()).logical_not();
    move_state(its, c10::kCPU);
    clear_moments(its, parameter, held);
    if (device_updater_ != nullptr) move_state(its, parameter.device());
  }
  masks_[parameter.unsafeGetTensorImpl()] = std::move(mask);
}

void FusedOptimizer::clear_mask(const at::Tensor& parameter) {
  expect_parameter("amp.FusedOptimizer.clear_mask", *this, parameter);
  masks_.erase(parameter.unsafeGetTensorImpl());
}

const FusedMask* FusedOptimizer::mask_of(const at::Tensor& parameter) const {
  const auto found = masks_.find(parameter.unsafeGetTensorImpl());
  return found == masks_.end() ? nullptr : &found->second;
}

void FusedOptimizer::set_location(const at::Tensor& parameter, StateLocation place) {
  constexpr const char* kSetPlace = "amp.FusedOptimizer.set_location";
  constexpr int64_t kStep = 128;  // kernels::OptimizerTensor::random_begin
  expect_parameter(kSetPlace, *this, parameter);
  if (place.begin < 0 || place.begin % kStep != 0)
    fail(kSetPlace, "expected begin to be a multiple of ", kStep, ", got ", place.begin);
  places_[parameter.unsafeGetTensorImpl()] = place;
}

const StateLocation* FusedOptimizer::location_of(const at::Tensor& parameter) const {
  const auto found = places_.find(parameter.unsafeGetTensorImpl());
  return found == places_.end() ? nullptr : &found->second;
}

void FusedOptimizer::clamp(const at::Tensor& parameter, double low, double high) {
  expect_parameter("amp.FusedOptimizer.clamp", *this, parameter);
  const at::NoGradGuard no_grad;
  const at::Tensor weight = master_weight(parameter);
  const at::Tensor outside = weight.lt(low).logical_or(weight.gt(high));
  const at::Tensor inside = weight.clamp(low, high);
  at::Tensor(parameter).copy_(at::where(outside, inside.to(parameter.scalar_type()), parameter.cpu()));
  const auto found = state().find(parameter.unsafeGetTensorImpl());
  if (found == state().end()) return;
  at::Tensor& master = static_cast<FusedParamState&>(*found->second).master;
  if (!master.defined()) return;
  if (master.scalar_type() == c10::kFloat) {
    master.copy_(inside);
  } else {
    master.masked_fill_(outside.to(master.device()), 0);  // what the parameter alone does not hold
  }
}

int64_t FusedOptimizer::state_bytes() const {
  int64_t bytes = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  };
  for (const auto& entry : state()) {
    auto its = static_cast<const FusedParamState&>(*entry.second);  // the tensors are shared
    for_each_moment(its, [&](const MomentTensors& moment) {
      add(moment.values);
      add(moment.absmax);
    });
    add(its.master);
  }
  return bytes;
}

void FusedOptimizer::reset_masters() {
  for (auto& entry : state()) static_cast<FusedParamState&>(*entry.second).master.reset();
}

}  // namespace ulp::amp
