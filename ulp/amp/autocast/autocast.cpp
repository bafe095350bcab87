#include "ulp/amp/autocast/autocast.h"

#include <ATen/autocast_mode.h>

#include "ulp/amp/autocast/policy_scope.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

// Runs before anything is read or changed, so that a refused guard leaves no trace.
c10::DeviceType checked(c10::DeviceType device, c10::ScalarType dtype) {
  if (device != c10::kCPU && device != c10::kCUDA) {
    fail("amp.Autocast", "expected the device cpu or cuda, got ",
         c10::DeviceTypeName(device, /*lower_case=*/true));
  }
  if (dtype != c10::kBFloat16 && dtype != c10::kHalf) {
    fail("amp.Autocast", "expected the dtype BFloat16 or Half, got ", c10::toString(dtype));
  }
  return device;
}

}  // namespace

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype, bool enabled)
    : Autocast(device, dtype, enabled, nullptr) {}

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype, const OpPolicy& policy)
    : Autocast(device, dtype, false, &policy) {}

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype, bool libtorch, const OpPolicy* policy)
    : device_(checked(device, dtype)),
      policy_(std::make_unique<PolicyScope>(device, dtype, policy)),
      previous_dtype_(at::autocast::get_autocast_dtype(device)),
      previous_enabled_(at::autocast::is_autocast_enabled(device)),
      previous_cache_enabled_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(device, libtorch);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::set_autocast_cache_enabled(false);
}

Autocast::~Autocast() {
  // A foreign guard inside this scope may have filled the cache; the outermost one empties it, as LibTorch's
  // does.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, previous_enabled_);
  at::autocast::set_autocast_dtype(device_, previous_dtype_);
  at::autocast::set_autocast_cache_enabled(previous_cache_enabled_);
}

}  // namespace ulp::amp
