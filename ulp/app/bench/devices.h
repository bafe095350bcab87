// What `ulp devices` shows: what this machine can compute with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/measure/gpus/nvidia.h"
#include "ulp/report/machine.h"
#include "ulp/report/table.h"

namespace ulp::app {

struct Devices {
  std::vector<report::Fact> machine;  ///< see report::machine_facts()
  std::vector<std::string> kernels;   ///< families of kernels that this machine can run, the best first
  std::string chosen;                 ///< the family that is used
  int cuda_devices = 0;               ///< that this build of LibTorch can use
  std::vector<measure::Gpu> gpus;     ///< that the driver shows, whether LibTorch can use them or not
};
/// Throws Error when ULP_ISA names no family or one that this machine cannot run. `nvml`: see
/// measure::nvidia_gpus().
ULP_API Devices find_devices(const std::string& nvml = "libnvidia-ml.so.1");

/// A row for each GPU and each of its slices, with memory and computed peaks.
ULP_API report::Table gpu_table(const std::vector<measure::Gpu>& gpus);

/// The measured peaks of one thread and of `threads` (0: all cores) as tables (peak_tables.h). `progress` as
/// in measure::PeakOptions. Throws as measure_peaks().
ULP_API std::vector<report::Table> peak_tables(
    int threads, bool quick, const std::function<void(const std::string& part)>& progress = {});

}  // namespace ulp::app
