// Autocast: run eligible operations in lower precision inside a scope.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>

#include "ulp/amp/autocast/op_policy.h"
#include "ulp/base/export.h"

namespace ulp::amp {

class PolicyScope;
enum class PolicyUse : uint8_t;
struct Precision;

/// While it lives, operations on `device` of this thread run in `dtype` where LibTorch's autocast lists allow
/// it. On destruction, normal or by an exception, everything is as it was before.
///
///   ulp::amp::Autocast guard(torch::kCPU, torch::kBFloat16);
///   auto y = model->forward(x);
///   {
///     ulp::amp::Autocast precise(torch::kCPU, torch::kBFloat16, /*enabled=*/false);   // local opt-out
///     loss = criterion(y.to(torch::kFloat32), target);
///   }
///
/// Guards nest, each thread has its own; destroy a guard on the thread that made it. Devices: CPU and CUDA;
/// dtypes: bf16 and fp16; anything else is an error. Run backward() outside of the scope: it uses the
/// precisions of the forward.
///
/// Differs from LibTorch's autocast in this: casts of weights are not cached. LibTorch's cache knows a
/// weight by its address alone, so a weight changed in place keeps its old values in the rest of the scope,
/// one first used under no-grad loses its gradient (pytorch #112583; not seen in 2.13), one used in another
/// dtype gets the first one's cast, and threads find, hold and drop each other's casts (#86136). A network
/// that uses each weight once in a forward pass pays nothing for this; one that uses a weight n times in one
/// scope casts it n times.
/// On a CPU without instructions for products of `dtype` (bf16 without AVX-512, fp16 on most) LibTorch's kernels take 5 to 60
/// times as long as those of fp32. There products are computed in fp32 on the operands in `dtype` and rounded to it, gradients
/// too, which is what the instructions do.
/// And in one point more: LSTM layers run in fp32, in inference too, where oneDNN trains none in the dtype (bf16 without AVX-512,
/// fp16 on some processors with it) and LibTorch's autocast ends in "could not create a primitive descriptor".
class ULP_API Autocast {
 public:
  explicit Autocast(c10::DeviceType device, c10::ScalarType dtype, bool enabled = true);
  /// Casts by this policy instead of LibTorch's lists. Listed ops are looked up in it at run time (about a
  /// microsecond an op); LibTorch's own autocast is off for the device. The first guard with a policy that
  /// names new ops registers kernels for them: do that before other threads compute. Not possible beside a
  /// backend of LibTorch's PrivateUse1 kind, whose autocast key it uses: an error.
  Autocast(c10::DeviceType device, c10::ScalarType dtype, const OpPolicy& policy);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  friend Autocast autocast_for(const Precision& precision, c10::DeviceType device);
  Autocast(c10::DeviceType device, c10::ScalarType dtype, bool libtorch, const OpPolicy* policy,
           PolicyUse use);
  /// Casts nothing. Products of operands that are of `dtype` already run as under an Autocast of it.
  static Autocast as_given(c10::DeviceType device, c10::ScalarType dtype);

  c10::DeviceType device_;
  std::unique_ptr<PolicyScope> policy_;
  c10::ScalarType previous_dtype_;
  bool previous_enabled_;
  bool previous_cache_enabled_;
};

}  // namespace ulp::amp
