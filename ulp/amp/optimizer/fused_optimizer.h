// SGD, Adam and AdamW in one pass over memory, for fp32, bf16 and fp16 parameters on the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ulp/amp/optimizer/update_rule.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// Options of a parameter group. Learning-rate schedulers use get_lr() and set_lr().
struct ULP_API FusedOptions : torch::optim::OptimizerCloneableOptions<FusedOptions> {
  FusedOptions() = default;
  FusedOptions(UpdateRule rule, MasterWeights masters, MomentFormat moments)
      : rule(rule), masters(masters), moments(moments) {}
  UpdateRule rule;
  MasterWeights masters = MasterWeights::fp32;
  MomentFormat moments = MomentFormat::fp32;

  double get_lr() const override;
  void set_lr(double lr) override;
};

/// State of one parameter; tensors that its rule or kind of master does not need are undefined. All have the
/// parameter's shape and memory layout, but for the codes of int4 and what blocks have in common.
struct ULP_API FusedParamState : torch::optim::OptimizerCloneableParamState<FusedParamState> {
  int64_t step = 0;
  at::Tensor momentum_buffer, exp_avg, exp_avg_sq;  ///< of FusedOptions::moments; int4: uint8 [ceil(n / 2)],
                                                    ///< the even elements of memory in the lower bits
  /// int8 and int4: the largest magnitude of each block of the parameter's memory, fp32 [blocks].
  at::Tensor momentum_buffer_absmax, exp_avg_absmax, exp_avg_sq_absmax;
  std::string memory_order;  ///< int8 and int4: which of the parameter's orders in memory the blocks follow
  at::Tensor master;  ///< fp32: the weight; split: int16, its low half; kahan: bf16, what rounding lost
};

/// Which elements of a parameter a FusedOptimizer trains.
struct FusedMask {
  at::Tensor
      bits;  ///< uint8: a bit an element in the order of the parameter's memory, 1 for those that are trained
  std::vector<int64_t> sizes, strides;  ///< of the parameter that it was made for
  at::Tensor on_device =
      {};  ///< `bits` beside the parameter, where a device makes the update; else undefined
};

/// Which part of a larger parameter a parameter is, for the random numbers of its rounding.
struct StateLocation {
  uint32_t ordinal = 0;  ///< of the larger one in its optimizer's list of parameters
  int64_t begin = 0;     ///< element in its memory, a multiple of 128
};

/// A parameter group: parameters with a rule of their own.
struct ULP_API FusedGroup {
  std::vector<at::Tensor> params;
  UpdateRule rule;
  MasterWeights masters = MasterWeights::fp32;
  MomentFormat moments = MomentFormat::fp32;
};

/// The groups with these parameters in groups of their own whose moments are fp32, behind the one each was in: what
/// embeddings want beside MomentFormat::int8, as their rare gradients leave blocks that one row rules. Groups that
/// become empty are left out; parameters that are in no group do nothing.
ULP_API std::vector<FusedGroup> with_fp32_moments(const std::vector<FusedGroup>& groups,
                                                  const std::vector<at::Tensor>& parameters);

/// Who makes the update of parameters that are on a device other than the CPU and have their state there.
/// None of them copies parameters or gradients to the host.
enum class DeviceUpdate {
  /// The CPU: the kernels of the host. CUDA: `kernels` where they can be had. Elsewhere the first of the
  /// others that is there.
  automatic,
  /// at::_fused_adamw_, at::_fused_adam_ and at::_fused_sgd_: fp32 masters and moments, no masks. An fp32
  /// gradient is unscaled and clipped in place, as PyTorch's fused optimizers leave it.
  fused_ops,
  /// at::_foreach_ operators, of any device: the same, but for gradients, which stay as they are.
  foreach_ops,
  /// Our own on CUDA, compiled at run time by NVRTC: all that the host's do, to the same bits.
  kernels,
};

/// Where a FusedOptimizer keeps what it has beside the parameters.
struct OffloadOptions {
  /// Parameters are on another device (a GPU; or the CPU, where that is as good as none). Masters, moments and copies of
  /// parameters and gradients are on the host, which makes the update. Gradients arrive in buckets, through pinned
  /// memory and beside the updates of those before; updated parameters go back in the same way.
  bool to_host = false;
  int64_t bucket_bytes = 32 << 20;  ///< > 0: of gradients
  /// Not empty: masters and moments of 64 KiB and more lie in files of this folder, which are mapped into memory and
  /// have no name. The kernel writes out what is not in use.
  std::string state_folder = {};
  /// Without to_host. Not automatic: masters and moments are on the parameters' device, which may be the CPU,
  /// and the update is made there as it says.
  DeviceUpdate update = DeviceUpdate::automatic;
};

class DeviceUpdater;
class HostCopies;
class StateMemory;

/// An optimizer whose update is one parallel loop over all parameters: gradient, weight, state and master are
/// read once and written once. Used as any torch::optim::Optimizer (GradScaler::step, learning-rate
/// schedulers, io::save_checkpoint), or through fused_step(), which takes unscaling, the check for inf and
/// NaN, and clipping into the same loop.
///
/// The arithmetic is fp32 in the order of LibTorch's C++ optimizers, multiply-adds fused where theirs are:
/// the same bits but for the square root of Adam, which is exact here. They do not depend on the instruction
/// set or the number of threads.
///
/// Parameters: fp32, bf16 or fp16 leaves, all on one device, dense in memory (any order of dimensions,
/// channels_last too), without memory in common; elsewhere than on the CPU DeviceUpdate or
/// OffloadOptions::to_host says who makes the update; anything else is an error, and so are none at all. One that a group lists
/// again (a tied weight that is registered under two names) is one parameter, as in what PyTorch's
/// parameters() gives; LibTorch's C++ optimizers, whose parameters() lists it twice, make two updates of it
/// in each step. In two groups it is an error. A parameter whose size or layout has changed since its first
/// step (set_data()) is an error of the next one. Gradients: dense; a gradient laid out otherwise than its
/// parameter is copied first; sparse gradients are an error. Parameters without a gradient are left alone.
///
/// Masters start from the parameters at the first step. After loading other weights into the model call
/// reset_masters().
class ULP_API FusedOptimizer : public torch::optim::Optimizer {
 public:
  /// Throws Error for parameters, rules and groups as said above. `seed`: of stochastic rounding, which
  /// depends on it, on the number of the step and on the place in the optimizer's list of parameters only.
  FusedOptimizer(std::vector<at::Tensor> params, UpdateRule rule, MasterWeights masters = MasterWeights::fp32,
                 uint64_t seed = 0, MomentFormat moments = MomentFormat::fp32);
  explicit FusedOptimizer(const std::vector<FusedGroup>& groups, uint64_t seed = 0,
                          const OffloadOptions& offload = {});
  ~FusedOptimizer() override;

  /// Adds a group whose options are FusedOptions, or those of the first group at its construction where it has
  /// none. Throws Error for other options and for parameters that the constructor refuses. (LibTorch's own
  /// function, through a reference to the base class, passes over options of kinds that it does not know.)
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  /// Throw Error: an archive of LibTorch would hold none of the state. io::save_checkpoint and
  /// io::load_checkpoint keep all of it.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  /// One update from the gradients as they are. A closure is called first, with gradients enabled.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// The weight behind a parameter in fp32, exactly as the next step will read it (a copy unless it is stored
  /// that way); the parameter itself before the first step. An error for a tensor that is not a parameter of
  /// this optimizer.
  at::Tensor master_weight(const at::Tensor& parameter) const;
  /// Forgets the masters: the next step starts from the parameters as they are then.
  void reset_masters();
  /// Brings a parameter and the weight behind it into [low, high], bounds that the parameter's type can hold. Throws
  /// Error for a tensor that is not a parameter of this optimizer.
  void clamp(const at::Tensor& parameter, double low, double high);

  /// From the next step on, elements of the parameter whose bit is 0 stay as they are: parameter and master keep
  /// their bits, whatever gradient, decay and momentum are; their moments become zero now and stay so; their
  /// gradients are in no norm and make no step skipped (GradScaler::unscale_(), which knows no masks, looks at
  /// all). All others get the bits that they would get without a mask; with moments in int8 and int4, blocks have
  /// the largest magnitude of their trained elements, and the moments of squares in int4, which have no zero, the
  /// least value. `bits`: uint8 [ceil(n / 8)], element i of
  /// the parameter in row-major order being bit i % 8 of byte i / 8. A mask is no state: io::save_checkpoint does
  /// not keep it and io::load_checkpoint leaves it where it is, so that a resumed run sets it again from wherever
  /// it is kept (prune::hold_masks() reads it from a graph). Throws Error for a tensor that is not a parameter of
  /// this optimizer, a wrong number of bytes and spare bits that are set.
  void set_mask(const at::Tensor& parameter, const at::Tensor& bits);
  /// All elements are trained again; those that were held start from moments of zero. Throws as set_mask() does.
  void clear_mask(const at::Tensor& parameter);
  /// The mask of a parameter; null where there is none.
  const FusedMask* mask_of(const at::Tensor& parameter) const;

  /// Bytes of all moments and masters as they are now; none before the first step.
  int64_t state_bytes() const;

  /// Rounds a parameter as an optimizer of larger parameters would round that part of one of them. No state,
  /// as a mask is none. Throws Error for a tensor that is not a parameter of this optimizer, and for a place
  /// that is no multiple of 128.
  void set_location(const at::Tensor& parameter, StateLocation place);
  /// Null where none was set: the whole of a parameter at its own place in the list.
  const StateLocation* location_of(const at::Tensor& parameter) const;

  uint64_t seed() const { return seed_; }
  /// For loading a checkpoint.
  void set_seed(uint64_t seed) { seed_ = seed; }
  /// For loading a checkpoint: moves masters and moments to where OffloadOptions wants them.
  void settle_state();

  /// Copies on the host; null without OffloadOptions::to_host. Internal to the room.
  HostCopies* host_copies() const { return host_copies_.get(); }
  /// Who makes the update on the device; null where the host does. Internal to the room.
  DeviceUpdater* device_updater() const { return device_updater_.get(); }
  /// Where state is made. Internal to the room.
  const StateMemory& state_memory() const { return *state_memory_; }

 private:
  uint64_t seed_;
  std::unique_ptr<HostCopies> host_copies_;
  std::unique_ptr<StateMemory> state_memory_;
  std::unique_ptr<DeviceUpdater> device_updater_;
  std::unordered_map<const c10::TensorImpl*, FusedMask> masks_;
  std::unordered_map<const c10::TensorImpl*, StateLocation> places_;
};

}  // namespace ulp::amp
