// What a forward pass depends on beside its inputs, so that it can be run again as it was: autocast and the
// state of random generators.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>
#include <vector>

namespace ulp::libtorch {
class AutocastPolicies;
}

namespace ulp::memory {

/// The autocast of a thread, and what else the dispatcher passes through or leaves out there: a backward
/// formula may
/// leave out autograd, which the work that is done again needs.
struct AutocastState {
  struct Device {
    at::DeviceType type = at::kCPU;
    bool enabled = false;
    at::ScalarType dtype = at::kBFloat16;
  };
  std::vector<Device> devices;
  bool cache = true;
  std::shared_ptr<const libtorch::AutocastPolicies> policies = {};  ///< of guards that have some
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  static AutocastState current();
};

/// While it lives, autocast and the dispatcher are as they were. Casts that it caches are forgotten at its
/// end.
class AutocastGuard {
 public:
  explicit AutocastGuard(const AutocastState& wanted);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  AutocastState before_;
  c10::impl::ForceDispatchKeyGuard keys_;
};

/// The states of the default generators of some devices.
class RandomState {
 public:
  RandomState() = default;
  /// The CPU's and those of the tensors' devices.
  static RandomState current(const std::vector<at::Tensor>& tensors);
  /// Sets the generators.
  void restore() const;
  /// The state now of the same generators.
  RandomState now() const;
  bool empty() const { return generators_.empty(); }

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

/// Gives generators their present states back in the end.
class RandomGuard {
 public:
  explicit RandomGuard(RandomState state) : state_(std::move(state)) {}
  ~RandomGuard() { state_.restore(); }
  RandomGuard(const RandomGuard&) = delete;
  RandomGuard& operator=(const RandomGuard&) = delete;

 private:
  RandomState state_;
};

}  // namespace ulp::memory
