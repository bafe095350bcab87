// LibTorch's autocast lists as plain data.
#pragma once

#include <span>

#include "ulp/amp/autocast/op_policy.h"

namespace ulp::amp {

/// Ops that share one rule, by their names without "aten::".
struct OpList {
  Cast cast;
  std::span<const char* const> ops;
};

std::span<const OpList> libtorch_cpu_lists();
std::span<const OpList> cuda_lists();

}  // namespace ulp::amp
