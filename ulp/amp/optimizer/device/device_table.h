// The arguments of the kernels of update_kernels.cuh, in the device's memory; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "ulp/amp/optimizer/device/kernel_launcher.h"
#include "ulp/amp/optimizer/update_rule.h"
#include "ulp/kernels/training/optimizer.h"

namespace ulp::amp {

/// Tensors with their steps, which kernels update. Arrays of OptimizerTensor are in the device's memory.
class DeviceTable {
 public:
  /// Room for so many tensors of these sizes.
  DeviceTable(KernelLauncher& launcher, c10::Device device, std::vector<int64_t> sizes);

  /// Brings the tensors, their steps and their numbers to the device, without waiting for it. Sizes are those
  /// of the constructor.
  void bind(std::span<const kernels::OptimizerTensor> tensors);
  /// And rules, of which the device makes the numbers: advance(). One a tensor; `counts`: steps so far.
  void bind_rules(std::span<const UpdateRule> rules);
  void bind_counts(std::span<const int64_t> counts, std::span<const int32_t> first);

  /// The sum of the squares of all gradients, fp64 without dimensions: a tensor of this table.
  at::Tensor square_sum();
  /// Its square root.
  at::Tensor norm();
  /// One update with gradient * inverse_scale * clip.
  void update(float inverse_scale, float clip);
  /// Updates by fp32 [3] of the device: inverse scale, clip, and 1 where nothing is to change.
  void update(const at::Tensor& control);
  /// Counts a step of each tensor and makes its numbers, unless control[2] is 1.
  void advance(const at::Tensor& control);

  /// int64 [tensors] and int32 [tensors].
  const at::Tensor& steps() const { return steps_; }
  const at::Tensor& first() const { return first_; }

 private:
  at::Tensor upload(const void* data, size_t bytes, const at::Tensor& to) const;
  void update(float inverse_scale, float clip, const float* control);

  KernelLauncher& launcher_;
  c10::Device device_;
  std::vector<int64_t> sizes_;
  int64_t tiles_ = 0, chunks_ = 0;
  at::Tensor entries_, numbers_, tables_, rules_, steps_, first_, sums_, total_;
};

/// Small tensors of every kind of store, moment and rule, updated on the device and by the kernels of the
/// host: what differs, or nothing.
std::string kernel_difference(KernelLauncher& launcher, c10::Device device);

}  // namespace ulp::amp
