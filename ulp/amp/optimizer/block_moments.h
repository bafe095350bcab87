// Moments of 8 and 4 bits as tensors: codes, an absmax for every block, and the way to fp32 and back. Not
// installed.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// One moment of a state.
struct MomentTensors {
  const char *name, *absmax_name;
  at::Tensor&
      values;  ///< fp32 or bf16 numbers or int8 codes as the parameter lies in memory; int4: uint8 [ceil(n / 2)]
  at::Tensor& absmax;  ///< fp32, one for each block of the parameter's memory; undefined without blocks
  bool squares;
};
/// Calls visit(MomentTensors) for each moment, also those that are not there.
template <typename Visit>
void for_each_moment(FusedParamState& state, Visit&& visit) {
  visit(MomentTensors{"momentum_buffer", "momentum_buffer_absmax", state.momentum_buffer,
                      state.momentum_buffer_absmax, false});
  visit(MomentTensors{"exp_avg", "exp_avg_absmax", state.exp_avg, state.exp_avg_absmax, false});
  visit(MomentTensors{"exp_avg_sq", "exp_avg_sq_absmax", state.exp_avg_sq, state.exp_avg_sq_absmax, true});
}

/// The parameter's dimensions from the outermost in memory on, without those of size 1: "0,2,3,1" of
/// channels_last. Blocks follow that order, so that they fit a parameter in the same one only.
ULP_API std::string memory_order(const at::Tensor& parameter);

/// What is wrong with a moment of a parameter: "expected ..., got ...", its name left out; empty where
/// nothing is.
ULP_API std::string moment_problem(const MomentTensors& moment, MomentFormat moments,
                                   const at::Tensor& parameter);

/// Moves moments and master to a device; those that are there stay as they are.
ULP_API void move_state(FusedParamState& state, c10::Device device);

/// Makes moments in blocks fp32 tensors on the host, as the parameter lies in memory; others stay.
ULP_API void widen_moments(FusedParamState& state, const at::Tensor& parameter);
/// And back: fp32 moments become what `moments` makes of a parameter of that size. bf16 ones stay.
ULP_API void narrow_moments(FusedParamState& state, const at::Tensor& parameter, MomentFormat moments);

/// Second moments of int8 whose codes are those of bitsandbytes' map, as checkpoints without `square_codes`
/// have them, get the codes of today.
ULP_API void renew_square_codes(FusedParamState& state, const at::Tensor& parameter);

/// Sets the moments to zero where `held`, a bool tensor of the parameter's sizes, is true. Second moments in
/// int4, which have no zero, get the least value.
void clear_moments(FusedParamState& state, const at::Tensor& parameter, const at::Tensor& held);

}  // namespace ulp::amp
