// What `ulp devices` shows: what this machine can compute with.
#pragma once

#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/report/machine.h"

namespace ulp::app {

struct Devices {
  std::vector<report::Fact> machine;  ///< see report::machine_facts()
  std::vector<std::string> kernels;   ///< families of kernels that this machine can run, the best first
  std::string chosen;                 ///< the family that is used
  int cuda_devices = 0;
};
/// Throws Error when ULP_ISA names no family or one that this machine cannot run.
ULP_API Devices find_devices();

}  // namespace ulp::app
