#include "ulp/measure/gpus/nvidia.h"

#include <dlfcn.h>

#include <map>
#include <memory>

#include "ulp/base/error.h"
#include "ulp/measure/peaks/peaks.h"

namespace ulp::measure {

namespace {

// What NVML's ABI has of the functions used here: no header of it is needed to build.
using Device = void*;
using Status = int;
constexpr Status kSuccess = 0;
constexpr unsigned kMultiprocessorClock = 1, kMemoryClock = 2;  // nvmlClockType_t

struct MemoryInfo {
  unsigned long long total, free, used;
};
/// nvmlDeviceAttributes_t.
struct Attributes {
  unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, optical_flow, gpu_slices, compute_slices;
  unsigned long long memory_megabytes;
};

/// The driver's library, initialized. Functions that it lacks fail.
class Nvml {
 public:
  explicit Nvml(const std::string& library)
      : handle_(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* handle) {
          if (handle != nullptr) ::dlclose(handle);
        }) {
    if (!handle_) return;
    started_ = call("nvmlInit_v2") == kSuccess;
    if (!started_) handle_.reset();
  }
  ~Nvml() {
    if (started_) call("nvmlShutdown");
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  explicit operator bool() const { return started_; }

  template <typename... Args>
  Status call(const char* name, Args... args) const {
    constexpr Status kNoFunction = 13;  // NVML_ERROR_FUNCTION_NOT_FOUND
    auto* function = reinterpret_cast<Status (*)(Args...)>(::dlsym(handle_.get(), name));
    return function == nullptr ? kNoFunction : function(args...);
  }
  /// Calls a function that gives a whole number of a device; 0 where it fails.
  template <typename... Args>
  unsigned number(const char* name, Device device, Args... args) const {
    unsigned value = 0;
    return call(name, device, args..., &value) == kSuccess ? value : 0;
  }

 private:
  std::unique_ptr<void, void (*)(void*)> handle_;
  bool started_ = false;
};

std::optional<MigSlice> slice_of(const Nvml& nvml, Device gpu, unsigned index) {
  Device device = nullptr;
  // A place without a slice is an error like any other: the ones behind it may have some.
  if (nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index, &device) != kSuccess) return std::nullopt;
  MigSlice slice{.index = static_cast<int>(index)};
  Attributes attributes{};
  if (nvml.call("nvmlDeviceGetAttributes_v2", device, &attributes) == kSuccess) {
    slice.multiprocessors = static_cast<int>(attributes.multiprocessors);
    slice.gpu_slices = static_cast<int>(attributes.gpu_slices);
    slice.compute_slices = static_cast<int>(attributes.compute_slices);
    slice.memory_bytes = static_cast<double>(attributes.memory_megabytes) * 1024 * 1024;
  }
  MemoryInfo memory{};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory) == kSuccess) {
    slice.memory_bytes = static_cast<double>(memory.total);
    slice.used_bytes = static_cast<double>(memory.used);
  }
  return slice;
}

/// CUDA cores of a multiprocessor, and fp16 multiply-adds a clock of its tensor cores.
struct Multiprocessor {
  int cores, multiply_adds;
};
const std::map<int, Multiprocessor>& multiprocessors() {
  static const std::map<int, Multiprocessor> known = {{70, {64, 512}}, {80, {64, 1024}}, {90, {128, 2048}}};
  return known;
}

Gpu gpu_of(const Nvml& nvml, Device device, int index) {
  constexpr unsigned kNameBytes = 96;
  constexpr double kMega = 1e6;
  Gpu gpu{.index = index, .name = {}};
  char name[kNameBytes] = "";
  if (nvml.call("nvmlDeviceGetName", device, name, kNameBytes - 1) == kSuccess) gpu.name = name;
  MemoryInfo memory{};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory) == kSuccess) {
    gpu.memory_bytes = static_cast<double>(memory.total);
    gpu.used_bytes = static_cast<double>(memory.used);
  }
  int major = 0, minor = 0;
  if (nvml.call("nvmlDeviceGetCudaComputeCapability", device, &major, &minor) == kSuccess)
    gpu.capability = 10 * major + minor;
  const auto known = multiprocessors().find(gpu.capability);
  if (known != multiprocessors().end()) {
    gpu.multiprocessors =
        static_cast<int>(nvml.number("nvmlDeviceGetNumGpuCores", device)) / known->second.cores;
  }
  gpu.clock_hz = kMega * nvml.number("nvmlDeviceGetMaxClockInfo", device, kMultiprocessorClock);
  const double bus_bytes = nvml.number("nvmlDeviceGetMemoryBusWidth", device) / 8.0;
  gpu.bandwidth = 2 * bus_bytes * kMega * nvml.number("nvmlDeviceGetMaxClockInfo", device, kMemoryClock);
  unsigned current = 0, pending = 0;
  gpu.mig = nvml.call("nvmlDeviceGetMigMode", device, &current, &pending) == kSuccess && current == 1;
  if (!gpu.mig) return gpu;
  const unsigned places = nvml.number("nvmlDeviceGetMaxMigDeviceCount", device);
  for (unsigned i = 0; i < places; ++i) {
    if (const auto slice = slice_of(nvml, device, i)) gpu.slices.push_back(*slice);
  }
  return gpu;
}

}  // namespace

std::vector<Gpu> nvidia_gpus(const std::string& library) {
  std::vector<Gpu> gpus;
  const Nvml nvml(library);
  if (!nvml) return gpus;
  unsigned count = 0;
  const Status status = nvml.call("nvmlDeviceGetCount_v2", &count);
  if (status != kSuccess)
    fail("measure.nvidia_gpus", "expected '", library, "' to count its GPUs, got status ", status);
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (nvml.call("nvmlDeviceGetHandleByIndex_v2", i, &device) == kSuccess)
      gpus.push_back(gpu_of(nvml, device, static_cast<int>(i)));
  }
  return gpus;
}

std::optional<GpuPeak> peak_of(const Gpu& gpu) {
  const auto known = multiprocessors().find(gpu.capability);
  if (known == multiprocessors().end() || gpu.multiprocessors == 0 || gpu.clock_hz == 0) return std::nullopt;
  return GpuPeak{device_peak(gpu.multiprocessors, known->second.multiply_adds, gpu.clock_hz), gpu.bandwidth};
}

std::optional<GpuPeak> peak_of(const Gpu& gpu, const MigSlice& slice) {
  std::optional<GpuPeak> peak = peak_of(gpu);
  if (!peak || !(gpu.memory_bytes > 0)) return std::nullopt;
  peak->operations *= static_cast<double>(slice.multiprocessors) / gpu.multiprocessors;
  peak->bandwidth *= slice.memory_bytes / gpu.memory_bytes;
  return peak;
}

}  // namespace ulp::measure
