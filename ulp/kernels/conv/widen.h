// Input as kernels read it that compute with wider numbers. Everything has internal linkage.
#pragma once

#include <cstdint>

#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

[[maybe_unused]] void copy_bf16_to_f32(const void* x, void* y, int64_t n) {
  const uint16_t* from = static_cast<const uint16_t*>(x);
  float* to = static_cast<float*>(y);
  for (int64_t i = 0; i < n; ++i) to[i] = bf16_to_float(from[i]);
}
[[maybe_unused]] void copy_u8_to_i16(const void* x, void* y, int64_t n) {
  const uint8_t* from = static_cast<const uint8_t*>(x);
  int16_t* to = static_cast<int16_t*>(y);
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

}  // namespace
}  // namespace ulp::kernels
