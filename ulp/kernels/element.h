// Describes the elements of a kernel's buffers: their type, their quantizer, and the activation that makes
// them. Plain data only: the files of each instruction set include this and no more.
#pragma once

#include <cstdint>

#include "ulp/base/activation.h"
#include "ulp/formats/data_type.h"

namespace ulp::kernels {

/// An affine 8-bit quantizer: real = (q - zero_point) * scale.
struct Affine {
  float scale = 1.0F;
  int32_t zero_point = 0;
};

}  // namespace ulp::kernels
