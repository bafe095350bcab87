#include "ulp/amp/optimizer/device/device_updater.h"

#include "ulp/amp/optimizer/state_memory.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

DeviceUpdate first_of_ops(c10::Device device) {
  return has_fused_ops(device.type()) ? DeviceUpdate::fused_ops : DeviceUpdate::foreach_ops;
}

}  // namespace

std::unique_ptr<DeviceUpdater> make_device_updater(DeviceUpdate update, c10::Device device,
                                                   std::string* missing) {
  if (update == DeviceUpdate::automatic && device.is_cuda()) {
    try {
      return make_kernel_updater(device);
    } catch (const Error& error) {
      *missing = error.what();
    }
  }
  if (update == DeviceUpdate::automatic) update = first_of_ops(device);
  if (update == DeviceUpdate::kernels) return make_kernel_updater(device);
  if (update == DeviceUpdate::fused_ops && !has_fused_ops(device.type()))
    fail(kFusedOptimizerWhere, "expected a device for which LibTorch has _fused_adamw_, got ", device);
  return make_ops_updater(update == DeviceUpdate::fused_ops);
}

}  // namespace ulp::amp
