#include "sixteen_lanes.h"

#include <cmath>
#include <cstdint>

namespace ulp::kernels {
namespace {

/// What ulp/kernels/training/product_lanes_avx512.h has, number by number.
struct ProductLanes {
  struct F {
    float lane[16];
  };
  static constexpr int kLanes = 16;
  template <typename Make>
  static F each(const Make& make) {
    F made;
    for (int i = 0; i < kLanes; ++i) made.lane[i] = make(i);
    return made;
  }
  static F load(const float* p) {
    return each([=](int i) { return p[i]; });
  }
  static void store(float* p, F v) { store_first(p, v, kLanes); }
  static F set1(float v) {
    return each([=](int) { return v; });
  }
  static F mul(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F max(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F fma(const F& a, const F& b, const F& c) {
    return each([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static F load_first(const float* p, int64_t n) {
    return each([=](int i) { return i < n ? p[i] : 0.0F; });
  }
  static void store_first(float* p, const F& v, int64_t n) {
    for (int64_t i = 0; i < n; ++i) p[i] = v.lane[i];
  }
  static void transpose8(const float* from, int64_t from_step, float* to, int64_t to_step) {
    for (int64_t r = 0; r < 8; ++r) {
      for (int64_t c = 0; c < 8; ++c) to[c * to_step + r] = from[r * from_step + c];
    }
  }
};

}  // namespace
}  // namespace ulp::kernels

#define ULP_LAYER_PRODUCT_OPS kLayerProductOpsSixteen
#include "ulp/kernels/training/layer_product_body.h"
#undef ULP_LAYER_PRODUCT_OPS
#define ULP_CONV_PRODUCT_OPS kConvProductOpsSixteen
#include "ulp/kernels/training/conv_products_body.h"
#undef ULP_CONV_PRODUCT_OPS

namespace ulp::kernels::test {

const LayerProductOps& sixteen_lane_products() {
  return kLayerProductOpsSixteen;
}

const ConvProductOps& sixteen_lane_convs() {
  return kConvProductOpsSixteen;
}

}  // namespace ulp::kernels::test
