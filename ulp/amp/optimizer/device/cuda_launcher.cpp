// Kernels on a CUDA device through its driver's interface, whose functions are looked for by name: no header
// of CUDA is needed.
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>

#include "ulp/amp/optimizer/device/kernel_launcher.h"
#include "ulp/amp/optimizer/device/nvrtc.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

constexpr const char* kLauncherWhere = "amp.FusedOptimizer";
constexpr unsigned kBlockThreads = 256;  // kThreads of update_kernels.cuh

class CudaLauncher : public KernelLauncher {
 public:
  CudaLauncher(c10::Device device, const CudaLibraries& libraries)
      : device_(device), driver_({libraries.driver}) {
    if (!driver_) fail(kLauncherWhere, "expected NVIDIA's driver ('", libraries.driver, "'), got none");
    expect("cuInit", driver_.call("cuInit", 0U));
    int cu_device = 0, major = 0, minor = 0;
    constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
    expect("cuDeviceGet", driver_.call("cuDeviceGet", &cu_device, static_cast<int>(device.index())));
    expect("cuDeviceGetAttribute", driver_.call("cuDeviceGetAttribute", &major, kMajor, cu_device));
    expect("cuDeviceGetAttribute", driver_.call("cuDeviceGetAttribute", &minor, kMinor, cu_device));
    // LibTorch's own context, kept as long as the process: another thread need not have it as its current
    // one.
    expect("cuDevicePrimaryCtxRetain", driver_.call("cuDevicePrimaryCtxRetain", &context_, cu_device));
    const std::string code = compile_update_kernels(libraries.nvrtc, 10 * major + minor);
    const CurrentContext current(*this);
    expect("cuModuleLoadData",
           driver_.call("cuModuleLoadData", &module_, static_cast<const void*>(code.data())));
  }

  void launch(const char* kernel, int64_t blocks, const void* args, size_t) override {
    if (blocks == 0) return;
    constexpr int64_t kMostBlocks = 0x7fffffff;
    if (blocks > kMostBlocks) fail(kLauncherWhere, "expected at most ", kMostBlocks, " blocks, got ", blocks);
    const c10::OptionalDeviceGuard guard(device_);
    void* const stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).native_handle();
    void* parameters[] = {const_cast<void*>(args)};
    const CurrentContext current(*this);
    expect("cuLaunchKernel", driver_.call("cuLaunchKernel", function(kernel), static_cast<unsigned>(blocks),
                                          1U, 1U, kBlockThreads, 1U, 1U, 0U, stream,
                                          static_cast<void**>(parameters), static_cast<void**>(nullptr)));
  }

 private:
  /// The device's context is the thread's while this is there.
  class CurrentContext {
   public:
    explicit CurrentContext(const CudaLauncher& of) : driver_(of.driver_) {
      of.expect("cuCtxPushCurrent", driver_.call("cuCtxPushCurrent_v2", of.context_));
    }
    ~CurrentContext() {
      void* popped = nullptr;
      driver_.call("cuCtxPopCurrent_v2", &popped);
    }
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;

   private:
    const NamedLibrary& driver_;
  };

  void expect(const char* call, int status) const {
    if (status == 0) return;
    const char* text = nullptr;
    if (status != NamedLibrary::kMissing) driver_.call("cuGetErrorString", status, &text);
    fail(kLauncherWhere, "expected ", call, " on ", device_, " to succeed, got status ", status, " (",
         text != nullptr ? text : "no such function", ")");
  }
  void* function(const char* kernel) {
    const std::lock_guard lock(mutex_);
    void*& found = functions_[kernel];
    if (found == nullptr)
      expect("cuModuleGetFunction", driver_.call("cuModuleGetFunction", &found, module_, kernel));
    return found;
  }

  c10::Device device_;
  NamedLibrary driver_;
  void* context_ = nullptr;
  void* module_ = nullptr;  // stays as long as the process
  std::mutex mutex_;
  std::map<std::string, void*> functions_;
};

std::mutex& launchers_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::map<c10::DeviceIndex, std::shared_ptr<KernelLauncher>>& cuda_launchers() {
  static std::map<c10::DeviceIndex, std::shared_ptr<KernelLauncher>> launchers;
  return launchers;
}
std::shared_ptr<KernelLauncher>& cpu_launcher() {
  static std::shared_ptr<KernelLauncher> launcher;
  return launcher;
}

}  // namespace

std::unique_ptr<KernelLauncher> make_cuda_launcher(c10::Device device, const CudaLibraries& libraries) {
  return std::make_unique<CudaLauncher>(device, libraries);
}

std::shared_ptr<KernelLauncher> launcher_of(c10::Device device) {
  const std::lock_guard lock(launchers_mutex());
  if (device.is_cpu() && cpu_launcher()) return cpu_launcher();
  if (!device.is_cuda())
    fail(kLauncherWhere, "expected CUDA parameters for DeviceUpdate::kernels, got parameters on ", device);
  std::shared_ptr<KernelLauncher>& launcher = cuda_launchers()[device.index()];
  if (!launcher) launcher = make_cuda_launcher(device);
  return launcher;
}

void set_cpu_launcher(std::shared_ptr<KernelLauncher> launcher) {
  const std::lock_guard lock(launchers_mutex());
  cpu_launcher() = std::move(launcher);
}

}  // namespace ulp::amp
