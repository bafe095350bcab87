// Starts kernels of update_kernels.cuh on a device; internal to the room.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "ulp/base/export.h"

namespace ulp::amp {

/// The kernels of update_kernels.cuh for one device.
class KernelLauncher {
 public:
  virtual ~KernelLauncher() = default;
  /// Starts a kernel on the device's current stream, kThreads threads a block. `args`: its parameter, which
  /// is copied. Throws Error where it could not be started.
  virtual void launch(const char* kernel, int64_t blocks, const void* args, size_t bytes) = 0;
};

/// NVIDIA's libraries, which are looked for by name when they are asked for, or others that stand for them.
struct CudaLibraries {
  std::string driver = "libcuda.so.1";
  std::string nvrtc = {};  ///< empty: wherever LibTorch's wheel or the toolkit has it
};

/// Compiles the kernels for a CUDA device. Throws Error with what is missing or failed.
ULP_API std::unique_ptr<KernelLauncher> make_cuda_launcher(c10::Device device,
                                                           const CudaLibraries& libraries = {});
/// Machine code for a compute capability (90 for 9.0), or PTX where NVRTC does not know it, without a device.
/// Throws Error with NVRTC's log.
ULP_API std::string compile_update_kernels(const std::string& nvrtc, int capability);

/// The launcher of a device, made at the first call. Throws Error for devices without one, with the reason.
std::shared_ptr<KernelLauncher> launcher_of(c10::Device device);
/// For tests: the launcher of the CPU, which has none of itself; null takes it away.
ULP_API void set_cpu_launcher(std::shared_ptr<KernelLauncher> launcher);

}  // namespace ulp::amp
