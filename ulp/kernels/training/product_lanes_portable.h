// Vectors of plain C++ for the products of training steps. Included by files of that instruction set alone;
// everything here has internal linkage.
#pragma once

#include <cstdint>

namespace ulp::kernels {
namespace {

struct ProductLanes {
  typedef float F __attribute__((vector_size(16)));
  typedef float Stored __attribute__((vector_size(16), aligned(4), may_alias));
  static constexpr int kLanes = 4;
  static F load(const float* p) { return *reinterpret_cast<const Stored*>(p); }
  static void store(float* p, F v) { *reinterpret_cast<Stored*>(p) = v; }
  static F set1(float v) { return F{v, v, v, v}; }
  static F mul(F a, F b) { return a * b; }
  /// The second one where either is a NaN, as on x86.
  static F max(F a, F b) { return a > b ? a : b; }
  static F fma(F a, F b, F c) {
    return F{__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1]),
             __builtin_fmaf(a[2], b[2], c[2]), __builtin_fmaf(a[3], b[3], c[3])};
  }
  static F load_first(const float* p, int64_t n) {
    F v = {};
    for (int64_t i = 0; i < n && i < kLanes; ++i) v[i] = p[i];
    return v;
  }
  static void store_first(float* p, F v, int64_t n) {
    for (int64_t i = 0; i < n && i < kLanes; ++i) p[i] = v[i];
  }
  static void transpose8(const float* from, int64_t from_step, float* to, int64_t to_step) {
    for (int64_t r = 0; r < 8; ++r) {
      for (int64_t c = 0; c < 8; ++c) to[c * to_step + r] = from[r * from_step + c];
    }
  }
};

}  // namespace
}  // namespace ulp::kernels
