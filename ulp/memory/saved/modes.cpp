#include "ulp/memory/saved/modes.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <algorithm>

#include "ulp/libtorch/autocast_policies.h"

namespace ulp::memory {
namespace {

void set(const AutocastState& state) {
  for (const AutocastState::Device& device : state.devices) {
    at::autocast::set_autocast_enabled(device.type, device.enabled);
    at::autocast::set_autocast_dtype(device.type, device.dtype);
  }
  at::autocast::set_autocast_cache_enabled(state.cache);
  libtorch::set_autocast_policies(state.policies);
}

}  // namespace

AutocastState AutocastState::current() {
  AutocastState state;
  for (const at::DeviceType type : {at::kCPU, at::kCUDA})
    state.devices.push_back(
        {type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)});
  state.cache = at::autocast::is_autocast_cache_enabled();
  state.policies = libtorch::autocast_policies();
  return state;
}

AutocastGuard::AutocastGuard(const AutocastState& wanted)
    : before_(AutocastState::current()), keys_(wanted.keys) {
  at::autocast::increment_nesting();
  set(wanted);
}

AutocastGuard::~AutocastGuard() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set(before_);
}

RandomState RandomState::current(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Device> devices{at::Device(at::kCPU)};
  for (const at::Tensor& tensor : tensors) {
    if (tensor.is_cuda() && std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  }
  RandomState state;
  for (const at::Device& device : devices)
    state.generators_.push_back(at::globalContext().defaultGenerator(device));
  return state.now();
}

void RandomState::restore() const {
  for (size_t i = 0; i < generators_.size(); ++i) {
    at::Generator generator = generators_[i];
    generator.set_state(states_[i]);
  }
}

RandomState RandomState::now() const {
  RandomState state;
  state.generators_ = generators_;
  for (const at::Generator& generator : generators_) {
    at::Generator shared = generator;  // the same one
    const std::lock_guard<std::mutex> lock(shared.mutex());
    state.states_.push_back(generator.get_state());
  }
  return state;
}

}  // namespace ulp::memory
