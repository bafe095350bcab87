#include <immintrin.h>

#include "ulp/kernels/binary/sign_body.h"

namespace ulp::kernels {
namespace {

struct Signs512 {
  static constexpr int kLanes = 16;
  static __m512 load(const float* p) { return _mm512_loadu_ps(p); }
  static __m512 zero() { return _mm512_setzero_ps(); }
  /// A bit for each x that is not >= its threshold.
  static void store_below(uint8_t* to, __m512 x, __m512 threshold, const uint8_t* flip) {
    unsigned bits = _mm512_cmp_ps_mask(x, threshold, _CMP_NGE_UQ);
    uint16_t flipped = 0;
    if (flip != nullptr) __builtin_memcpy(&flipped, flip, 2);
    bits ^= flipped;
    __builtin_memcpy(to, &bits, 2);
  }
};

}  // namespace

SignFn pack_signs_avx512() {
  return pack<Signs512>;
}

}  // namespace ulp::kernels
