#include "ulp/amp/autocast/autocast.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>

#include "ulp/amp/autocast/policy_scope.h"
#include "ulp/amp/autocast/wide_products.h"
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

/// Whether oneDNN trains an LSTM layer in `dtype` on this processor, found out by a tiny one.
bool has_lstm(c10::ScalarType dtype) {
  constexpr int64_t kLstm = 2;  // the mode's number in LibTorch
  const at::DisableRecordFunctionGuard unseen;
  const at::AutoGradMode training(true);  // oneDNN may have one that cannot be trained
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto zeros = [&](at::IntArrayRef sizes) { return at::zeros(sizes, dtype); };
  try {
    at::mkldnn_rnn_layer(zeros({1, 1, 2}), zeros({8, 2}), zeros({8, 2}), zeros({8}), zeros({8}),
                         zeros({1, 1, 2}), zeros({1, 1, 2}), /*reverse=*/false, /*batch_sizes=*/{}, kLstm,
                         /*hidden_size=*/2, /*num_layers=*/1, /*has_biases=*/true, /*bidirectional=*/false,
                         /*batch_first=*/false, /*train=*/true);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// has_lstm(), asked once for each dtype.
bool trains_lstm(c10::ScalarType dtype) {
  static const bool bf16 = has_lstm(c10::kBFloat16), fp16 = has_lstm(c10::kHalf);
  return dtype == c10::kBFloat16 ? bf16 : fp16;
}

OpPolicy make_exceptions(c10::ScalarType dtype) {
  OpPolicy policy;
  if (!trains_lstm(dtype)) policy.set(kLstmLayerOp, Cast::fp32);
  if (computes_wide(dtype)) {
    for (const char* op : wide_products()) policy.set(op, Cast::lower_precision);
  }
  return policy;
}

/// What has to be done by kernels of our own on this processor, or null where there is nothing. LibTorch's
/// lists cast LSTM layers where oneDNN has none in that dtype (bf16 without AVX-512, fp16 where oneDNN has it
/// for inference alone), which ends in an error: such layers run in fp32. Products whose instructions are not
/// there are computed in fp32.
const OpPolicy* exceptions(c10::DeviceType device, c10::ScalarType dtype) {
  if (device != c10::kCPU || c10::is_privateuse1_backend_registered()) return nullptr;
  static const OpPolicy bf16 = make_exceptions(c10::kBFloat16), fp16 = make_exceptions(c10::kHalf);
  const OpPolicy& policy = dtype == c10::kBFloat16 ? bf16 : fp16;
  return policy.rules().empty() ? nullptr : &policy;
}

/// Whether LSTM layers run in fp32 where a policy casts them to the dtype.
bool needs_wide_lstm(c10::DeviceType device, c10::ScalarType dtype, PolicyUse use) {
  return use == PolicyUse::lists && device == c10::kCPU && !trains_lstm(dtype);
}

}  // namespace

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype, bool enabled)
    : Autocast(device, dtype, enabled, enabled ? exceptions(device, dtype) : nullptr, PolicyUse::exceptions) {
}

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype, const OpPolicy& policy)
    : Autocast(device, dtype, false, &policy, PolicyUse::lists) {}

Autocast Autocast::as_given(c10::DeviceType device, c10::ScalarType dtype) {
  return Autocast(device, dtype, false, exceptions(checked(device, dtype), dtype), PolicyUse::as_given);
}

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype, bool libtorch, const OpPolicy* policy,
                   PolicyUse use)
    : device_(checked(device, dtype)),
      policy_(std::make_unique<PolicyScope>(device, dtype, policy, use, needs_wide_lstm(device, dtype, use))),
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
