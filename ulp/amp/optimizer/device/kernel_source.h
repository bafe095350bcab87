// The text of update_kernels.cuh inside the library, for NVRTC.
#pragma once

#include <string_view>

namespace ulp::amp {

/// Made by the build from the file.
extern const std::string_view kUpdateKernelSource;

}  // namespace ulp::amp
