// How a policy other than LibTorch's own takes hold of operations: kernels on a dispatch key of the autocast
// family that nothing else uses.
//
// The key is AutocastPrivateUse1. It lies above autograd, so that casts are differentiated, and it belongs to
// c10::autocast_dispatch_keyset, so that everything in LibTorch that turns autocast off turns this off as
// well. Each op that a policy names gets one boxed kernel there, which asks the thread's policy what to do;
// all other ops fall through at no cost. The key is active only inside a PolicyScope.
//
// Not taken: overriding the kernels of AutocastCPU (LibTorch warns at each, and its own autocast would change
// for everyone), and a boxed fallback for every op (slows down ops that no policy names).
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "ulp/amp/autocast/op_policy.h"

namespace c10 {
struct FunctionSchema;
}
namespace ulp::libtorch {
class AutocastPolicies;
}

namespace ulp::amp {

/// What autocast casts: fp32, bf16 and fp16; never fp64, complex, fp8 or integers.
constexpr bool castable(c10::ScalarType dtype) {
  return dtype == c10::kFloat || dtype == c10::kBFloat16 || dtype == c10::kHalf;
}

/// Which argument is the op's optional `dtype`, if it has one.
std::optional<size_t> dtype_argument(const c10::FunctionSchema& schema);

/// The number by which this process knows an op. Numbers are given once and never change.
size_t slot_of(const std::string& target);

/// What a policy is for.
enum class PolicyUse : uint8_t {
  lists,       ///< it is all that autocast does
  exceptions,  ///< it is what LibTorch's autocast beside it does not do well
  as_given  ///< nothing is cast: products that it lists are computed as wide_product() does where their operands are halves
};

/// What an LSTM layer is on the CPU where oneDNN computes it.
inline constexpr const char* kLstmLayerOp = "aten::mkldnn_rnn_layer";

/// While it lives, `policy` (or none, if null) decides about operations on `device` of this thread. Nests. `wide_lstm`: LSTM layers
/// that it casts to `dtype` run in fp32.
class PolicyScope {
 public:
  PolicyScope(c10::DeviceType device, c10::ScalarType dtype, const OpPolicy* policy,
              PolicyUse use = PolicyUse::lists, bool wide_lstm = false);
  ~PolicyScope();
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;

 private:
  std::shared_ptr<const libtorch::AutocastPolicies> previous_;
  bool previous_included_, previous_excluded_;
};

/// What this thread's autocast, ours or LibTorch's, does to an op on a device right now.
struct ActiveRule {
  bool autocast = false;  ///< autocast is on
  Cast cast = Cast::leave;
  c10::ScalarType dtype = c10::kFloat;  ///< the lower precision
};
ActiveRule active_rule(std::string_view target, c10::DeviceType device);

}  // namespace ulp::amp
