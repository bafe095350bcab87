// A vector of one number, with what the finish of binary layers needs of a vector: for code that runs anywhere. Everything has
// internal linkage.
#pragma once

#include <cstdint>

#include "ulp/kernels/element.h"

namespace ulp::kernels {
namespace {

struct OneLane {
  using F = float;
  using I = int32_t;
  static constexpr int kLanes = 1;
  static F loadf(const float* p) { return *p; }
  static I loadi(const int32_t* p) { return *p; }
  static F set1(float v) { return v; }
  static F to_float(I v) { return static_cast<float>(v); }
  static F mul(F a, F b) { return a * b; }
  static F add(F a, F b) { return a + b; }
  static I addi(I a, I b) { return a + b; }
  static I subi(I a, I b) { return a - b; }
  /// As the instructions have them: the second one where either is a NaN.
  static F max(F a, F b) { return a > b ? a : b; }
  static F min(F a, F b) { return a < b ? a : b; }
  static F load_as_float(DataType, const void* data, int64_t i, int64_t) {
    return static_cast<const float*>(data)[i];
  }
  static void store_f32(void* data, int64_t i, int64_t, F v) { static_cast<float*>(data)[i] = v; }
};

}  // namespace
}  // namespace ulp::kernels
