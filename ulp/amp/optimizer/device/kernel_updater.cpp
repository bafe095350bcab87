// Steps on a device by kernels that are compiled at run time.
#include <ATen/Functions.h>

#include <map>
#include <memory>
#include <mutex>

#include "ulp/amp/optimizer/device/device_table.h"
#include "ulp/amp/optimizer/device/device_updater.h"
#include "ulp/amp/optimizer/state_memory.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

std::vector<int64_t> sizes_of(const std::vector<GradientEntry>& entries) {
  std::vector<int64_t> sizes;
  for (const GradientEntry& entry : entries) sizes.push_back(entry.parameter.numel());
  return sizes;
}

class KernelUpdater : public DeviceUpdater {
 public:
  KernelUpdater(std::shared_ptr<KernelLauncher> launcher, c10::Device device)
      : launcher_(std::move(launcher)), device_(device) {}

  DeviceUpdate kind() const override { return DeviceUpdate::kernels; }
  KernelLauncher* launcher() const override { return launcher_.get(); }
  std::string problem(const at::Tensor&, const FusedOptions&) const override { return {}; }
  std::string problem(const GradientEntry&, const FusedOptions&) const override { return {}; }

  at::Tensor square_sum(const std::vector<GradientEntry>& entries) override {
    DeviceTable& table = table_of(entries);
    std::vector<kernels::OptimizerTensor> tensors;
    for (const GradientEntry& entry : entries) tensors.push_back(gradient_tensor(entry));
    table.bind(tensors);
    return table.square_sum();
  }

  void apply(FusedOptimizer& optimizer, const std::vector<GradientEntry>& entries, float inverse_scale,
             float clip) override {
    std::vector<kernels::UpdateStep> steps(entries.size());
    std::vector<kernels::OptimizerTensor> tensors;
    for (size_t i = 0; i < entries.size(); ++i)
      tensors.push_back(prepare_update(optimizer, entries[i], steps[i]));
    DeviceTable& table = table_of(entries);
    table.bind(tensors);
    table.update(inverse_scale, clip);
  }

 private:
  /// The table of parameters of these sizes: that of the last step where they are the same.
  DeviceTable& table_of(const std::vector<GradientEntry>& entries) {
    std::vector<int64_t> sizes = sizes_of(entries);
    if (!table_ || sizes != sizes_) {
      table_ = std::make_unique<DeviceTable>(*launcher_, device_, sizes);
      sizes_ = std::move(sizes);
    }
    return *table_;
  }

  std::shared_ptr<KernelLauncher> launcher_;
  c10::Device device_;
  std::vector<int64_t> sizes_;
  std::unique_ptr<DeviceTable> table_;
};

/// The result of kernel_difference() for a launcher, computed once.
std::string difference_of(const std::shared_ptr<KernelLauncher>& launcher, c10::Device device) {
  static std::mutex mutex;
  static std::map<std::shared_ptr<KernelLauncher>, std::string> found;
  const std::lock_guard lock(mutex);
  const auto known = found.find(launcher);
  return known != found.end() ? known->second
                              : found.emplace(launcher, kernel_difference(*launcher, device)).first->second;
}

}  // namespace

std::unique_ptr<DeviceUpdater> make_kernel_updater(c10::Device device) {
  auto launcher = launcher_of(device);
  const std::string difference = difference_of(launcher, device);
  if (!difference.empty()) {
    fail(kFusedOptimizerWhere, "expected kernels on ", device,
         " that give the bits of the host's, got others for ", difference,
         " (use DeviceUpdate::fused_ops, or OffloadOptions::to_host)");
  }
  return std::make_unique<KernelUpdater>(std::move(launcher), device);
}

}  // namespace ulp::amp
