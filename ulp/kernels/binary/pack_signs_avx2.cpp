#include <immintrin.h>

#include "ulp/kernels/binary/sign_body.h"

namespace ulp::kernels {
namespace {

struct Signs256 {
  static constexpr int kLanes = 8;
  static __m256 load(const float* p) { return _mm256_loadu_ps(p); }
  static __m256 zero() { return _mm256_setzero_ps(); }
  /// A bit for each x that is not >= its threshold.
  static void store_below(uint8_t* to, __m256 x, __m256 threshold, const uint8_t* flip) {
    const int bits = _mm256_movemask_ps(_mm256_cmp_ps(x, threshold, _CMP_NGE_UQ));
    *to = static_cast<uint8_t>(bits ^ (flip == nullptr ? 0 : *flip));
  }
};

}  // namespace

SignFn pack_signs_avx2() {
  return pack<Signs256>;
}

}  // namespace ulp::kernels
