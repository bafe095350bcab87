// The kernels of optimizer steps on GPUs, compiled for the CPU: the blocks run one after the other.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/amp/optimizer/device/kernel_launcher.h"

namespace ulp::amp::test {

/// Counts what it starts.
struct CpuKernels : KernelLauncher {
  void launch(const char* kernel, int64_t blocks, const void* args, size_t bytes) override;
  /// Runs what was launched while `hold` was set, which stays for another time.
  void run_held() const;
  std::map<std::string, int> launches;
  bool hold = false;  ///< launches are kept, as a graph that records keeps them
  std::vector<std::function<void()>> held;
};

/// The CPU has kernels while it is there.
struct WithCpuKernels {
  std::shared_ptr<CpuKernels> kernels = std::make_shared<CpuKernels>();
  WithCpuKernels() { set_cpu_launcher(kernels); }
  ~WithCpuKernels() { set_cpu_launcher(nullptr); }
};

}  // namespace ulp::amp::test
