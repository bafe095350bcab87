// What FusedOptimizer::step and fused_step share: finding the gradients, measuring and applying them;
// internal to the room.
#pragma once

#include <string>
#include <vector>

#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/kernels/training/optimizer.h"

namespace ulp::amp {

/// A parameter that has a gradient.
struct GradientEntry {
  size_t group;      ///< of the optimizer
  size_t index;      ///< within the group
  uint32_t ordinal;  ///< place in the list of all parameters
  at::Tensor parameter;
  at::Tensor gradient;   ///< on the host or with a device's updater there, in the parameter's memory layout
  at::Tensor mask = {};  ///< FusedMask::bits; undefined where there is none
  at::Tensor host = {};  ///< the parameter itself, or its copy on the host
  size_t bucket = 0;     ///< of those that are waited for together
};

/// "parameter 3 of group 0", for messages.
std::string parameter_name(size_t group, size_t index);
/// An error unless the kernels can update the parameter; `elsewhere`: it need not be on the CPU.
void check_parameter(const at::Tensor& parameter, MasterWeights masters, bool elsewhere, size_t group,
                     size_t index);
/// A parameter, and which one it is.
struct ParameterMemory {
  at::Tensor parameter;
  size_t group, index;
};
/// An error where two parameters share memory: their updates would be added up in no certain order.
void check_apart(std::vector<ParameterMemory> parameters);
/// An error if the group does not belong to a FusedOptimizer.
const FusedOptions& options_of(const torch::optim::OptimizerParamGroup& group);

/// Where the parameters are.
c10::Device device_of(FusedOptimizer& optimizer);

/// The fields that kernels need to measure a gradient.
kernels::OptimizerTensor gradient_tensor(const GradientEntry& entry);

/// The state of a parameter, made where there is none.
FusedParamState& state_for(FusedOptimizer& optimizer, const at::Tensor& parameter);

/// All gradients; an error for those that are sparse or not floating-point numbers on their parameter's
/// device, and for parameters that no longer fit their state or share memory. Those that come from another
/// device may be on their way.
std::vector<GradientEntry> collect_gradients(FusedOptimizer& optimizer);

/// The sum of the squares of all gradients in double, when they have arrived; inf or NaN exactly when one of them is
/// not finite.
double gradient_square_sum(FusedOptimizer& optimizer, const std::vector<GradientEntry>& entries);

/// An error unless the next step can go on from the state: its types fit the options, its sizes the parameter.
void check_state(const FusedParamState& state, const GradientEntry& of, const FusedOptions& options);
/// The bits of the parameter's mask, undefined without one; an error where it was made for another shape or layout.
at::Tensor mask_bits(const FusedOptimizer& optimizer, const GradientEntry& of);
/// The numbers of the count-th step by a rule, from 1; SGD's first_step is the state's affair.
kernels::UpdateStep update_numbers(const UpdateRule& rule, int64_t count);
/// What the kernels need for the next step of one parameter, whose state is made where it is not there yet; `step`, which
/// becomes its numbers, must outlive it.
kernels::OptimizerTensor prepare_update(FusedOptimizer& optimizer, const GradientEntry& entry,
                                        kernels::UpdateStep& step);

/// One step with gradient * inverse_scale * clip.
void apply_gradients(FusedOptimizer& optimizer, const std::vector<GradientEntry>& entries,
                     float inverse_scale, float clip);

}  // namespace ulp::amp
