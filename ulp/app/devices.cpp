#include "ulp/app/devices.h"

#include <torch/cuda.h>

#include "ulp/kernels/isa/isa.h"

namespace ulp::app {

Devices find_devices() {
  Devices devices{.machine = report::machine_facts(),
                  .kernels = {},
                  .chosen = kernels::to_string(kernels::selected_isa()),
                  .cuda_devices = static_cast<int>(torch::cuda::device_count())};
  for (const kernels::Isa isa : kernels::available_isas())
    devices.kernels.emplace_back(kernels::to_string(isa));
  return devices;
}

}  // namespace ulp::app
