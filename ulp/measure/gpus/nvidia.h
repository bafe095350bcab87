// The NVIDIA GPUs of this machine and their MIG slices, as the driver's library (NVML) describes them. It is
// looked for when it is asked, so that nothing of NVIDIA is needed where there is no GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::measure {

/// A part of a GPU with memory and multiprocessors of its own (Multi-Instance GPU).
struct MigSlice {
  int index = 0;  ///< among the places for slices of its GPU, some of which may be empty
  int multiprocessors = 0;
  int gpu_slices = 0, compute_slices = 0;  ///< 1 and 1 of a 1g.5gb
  double memory_bytes = 0, used_bytes = 0;
};

/// One GPU.
struct Gpu {
  int index = 0;
  std::string name = {};
  double memory_bytes = 0, used_bytes = 0;
  int capability = 0;       ///< compute capability: 80 for 8.0; 0 where the driver does not say
  int multiprocessors = 0;  ///< 0 where the driver does not say
  double clock_hz = 0;      ///< of multiprocessors, the highest
  double bandwidth = 0;     ///< bytes/s of its memory: bus width x clock x 2; 0 where the driver does not say
  bool mig = false;         ///< cut into slices: a process sees one of them
  std::vector<MigSlice> slices = {};
};

/// Every GPU that the driver shows, none where there is no driver. Reads no utilization: under MIG there is
/// none. `library`: the driver's, or one that stands for it. Throws ulp::Error where the library is there and
/// cannot say what GPUs there are.
ULP_API std::vector<Gpu> nvidia_gpus(const std::string& library = "libnvidia-ml.so.1");

/// The computed peak of a GPU or of a slice of it.
struct GpuPeak {
  double operations = 0;  ///< a second, products of fp16 with sums in fp32 on tensor cores, dense
  double bandwidth = 0;   ///< bytes/s
};

/// device_peak() of its multiprocessors and clock. Nothing for a compute capability other than 7.0, 8.0 and
/// 9.0 (512, 1,024 and 2,048 multiply-adds a clock and multiprocessor), or where the driver does not say
/// enough.
ULP_API std::optional<GpuPeak> peak_of(const Gpu& gpu);
/// The share of its GPU's peak that a slice has: of operations by multiprocessors, of bandwidth by memory.
ULP_API std::optional<GpuPeak> peak_of(const Gpu& gpu, const MigSlice& slice);

}  // namespace ulp::measure
