// The random bits of formats/random_bits.h, sixteen blocks at a time; only for files compiled for AVX-512.
// Everything has internal linkage.
#pragma once

#include <immintrin.h>

#include "ulp/formats/random_bits.h"

namespace ulp::kernels {

/// Four words of eight blocks, each in the lower half of a 64-bit lane. The upper halves hold what is left of
/// products; the multiplication does not read them.
struct PhiloxLanes {
  __m512i word[4];
};

static inline __m512i xor3(__m512i a, __m512i b, __m512i c) {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}

static inline PhiloxLanes philox_lanes(formats::RandomKey key, uint64_t first_block) {
  const __m512i block = _mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(first_block)),
                                         _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  const __m512i stream = _mm512_set1_epi64(static_cast<int64_t>(key.stream));
  PhiloxLanes s{{block, _mm512_srli_epi64(block, 32), stream, _mm512_srli_epi64(stream, 32)}};
  uint32_t key0 = static_cast<uint32_t>(key.seed), key1 = static_cast<uint32_t>(key.seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const __m512i product0 = _mm512_mul_epu32(s.word[0], _mm512_set1_epi64(0xD2511F53));
    const __m512i product1 = _mm512_mul_epu32(s.word[2], _mm512_set1_epi64(0xCD9E8D57));
    s = {{xor3(_mm512_srli_epi64(product1, 32), s.word[1], _mm512_set1_epi64(key0)), product1,
          xor3(_mm512_srli_epi64(product0, 32), s.word[3], _mm512_set1_epi64(key1)), product0}};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return s;
}

/// As formats::random_bits_of_group().
static inline __attribute__((always_inline)) void random_bits_of_group_avx512(formats::RandomKey key,
                                                                              uint64_t group,
                                                                              uint32_t* words) {
  const PhiloxLanes lower = philox_lanes(key, group * 16), upper = philox_lanes(key, group * 16 + 8);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  for (int w = 0; w < 4; ++w) {
    // Whole vectors: two halves would hold up who reads them as one.
    _mm512_storeu_si512(words + w * 16, _mm512_permutex2var_epi32(lower.word[w], even, upper.word[w]));
  }
}

}  // namespace ulp::kernels
