#include "ulp/amp/fp8/fp8_product.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>

namespace ulp::amp {

namespace {

constexpr int kTurns = 3;

Fp8ProductChooser& chooser() {
  static Fp8ProductChooser one;
  return one;
}

/// Of a device that works behind the host's back.
Fp8ProductChooser::Timer timer_of(const at::Device& device) {
  return [device](const std::function<void()>& call) {
    using Clock = std::chrono::steady_clock;
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeDevice(device.index());
    const auto start = Clock::now();
    call();
    guard.synchronizeDevice(device.index());
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
}

}  // namespace

bool Fp8ProductChooser::native(const Fp8Tensor& a, const Fp8Tensor& b, const Fp8ProductOf& of,
                               const std::function<void()>& native, const std::function<void()>& emulated,
                               const Timer& seconds) {
  const std::lock_guard guard(lock_);
  const Sizes sizes{a.codes.size(0), a.codes.size(1),         b.codes.size(0),         a.format,
                    b.format,        columns_of_scales(a, b), a.codes.device().index()};
  auto found = measured_.find(sizes);
  if (found == measured_.end()) {
    Measured best{seconds(native), seconds(emulated)};
    // The first calls load kernels and choose algorithms.
    for (int turn = 0; turn < kTurns; ++turn) {
      const Measured now{seconds(native), seconds(emulated)};
      best = turn == 0 ? now
                       : Measured{std::min(best.native, now.native), std::min(best.emulated, now.emulated)};
    }
    found = measured_.emplace(sizes, best).first;
  }
  const bool faster = found->second.native < found->second.emulated;
  if (places_.try_emplace(Layer{of.layer, of.role, sizes}, choices_.size()).second) {
    choices_.push_back({.layer = of.layer,
                        .role = of.role,
                        .rows = a.codes.size(0),
                        .inner = a.codes.size(1),
                        .columns = b.codes.size(0),
                        .native_seconds = found->second.native,
                        .emulated_seconds = found->second.emulated,
                        .native = faster});
  }
  return faster;
}

std::vector<Fp8ProductChoice> Fp8ProductChooser::choices() const {
  const std::lock_guard guard(lock_);
  return choices_;
}

std::vector<Fp8ProductChoice> fp8_product_choices() {
  return chooser().choices();
}

at::Tensor emulated_product(const Fp8Tensor& a, const Fp8Tensor& b) {
  const bool whole = a.scale_inv.dim() == 0 && b.scale_inv.dim() == 0;
  if (!whole) return at::mm(a.dequantized(), b.dequantized().t());
  return at::mm(a.values(), b.values().t()).mul_(a.scale_inv * b.scale_inv);
}

at::Tensor fp8_product(const Fp8Tensor& a, const Fp8Tensor& b, bool fast_accumulation,
                       const Fp8ProductOf& of) {
  const at::Device device = a.codes.device();
  // On processors the emulation is the definition.
  if (device.is_cpu() || !takes_scaled_mm(a, b)) return emulated_product(a, b);
  const bool native = chooser().native(
      a, b, of, [&] { scaled_mm(a, b, fast_accumulation); }, [&] { emulated_product(a, b); },
      timer_of(device));
  return native ? scaled_mm(a, b, fast_accumulation) : emulated_product(a, b);
}

}  // namespace ulp::amp
