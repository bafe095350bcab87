// Who makes the steps of a FusedOptimizer whose parameters and state are on a device; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "ulp/amp/optimizer/device/kernel_launcher.h"
#include "ulp/amp/optimizer/fused_plan.h"

namespace ulp::amp {

/// One of these is behind a FusedOptimizer; a step has all its gradients at once.
class DeviceUpdater {
 public:
  virtual ~DeviceUpdater() = default;
  /// The problem of a parameter under these options: "expected ..., got ..."; empty where there is none.
  virtual std::string problem(const at::Tensor& parameter, const FusedOptions& options) const = 0;
  /// And with what a step would find: its gradient and its mask.
  virtual std::string problem(const GradientEntry& entry, const FusedOptions& options) const = 0;
  /// The sum of the squares of all gradients, fp64 on the device: inf or NaN exactly when one of them is not
  /// finite.
  virtual at::Tensor square_sum(const std::vector<GradientEntry>& entries) = 0;
  /// One step by numbers that the host knows; counts of FusedParamState are the caller's affair.
  virtual void apply(FusedOptimizer& optimizer, const std::vector<GradientEntry>& entries,
                     float inverse_scale, float clip) = 0;
  virtual DeviceUpdate kind() const = 0;
  /// The launcher of its kernels; null where it has none.
  virtual KernelLauncher* launcher() const { return nullptr; }
};

/// `automatic`: kernels on CUDA where they can be had, else fused_ops where LibTorch has them, else
/// foreach_ops; then `missing` becomes why there are no kernels. Throws Error where the device has no such
/// kernels or operators.
std::unique_ptr<DeviceUpdater> make_device_updater(DeviceUpdate update, c10::Device device,
                                                   std::string* missing);

/// Updates by kernels. Throws Error where the device has none, or where they do not give the bits of the
/// host's.
std::unique_ptr<DeviceUpdater> make_kernel_updater(c10::Device device);
/// Updates by operators of LibTorch.
std::unique_ptr<DeviceUpdater> make_ops_updater(bool fused);
/// Whether LibTorch has its fused optimizers for this kind of device.
bool has_fused_ops(c10::DeviceType type);

}  // namespace ulp::amp
