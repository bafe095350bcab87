#include <immintrin.h>

#include "ulp/kernels/peak/peak_body.h"

namespace ulp::kernels {
namespace {

struct Fma {
  using V = __m256;
  static constexpr int kChains = 12;
  V factor = _mm256_set1_ps(0.999F), addend = _mm256_set1_ps(0.5F);
  static V start(int i) { return _mm256_set1_ps(static_cast<float>(i)); }
  V step(V sum) const {
    __asm__ volatile("vfmadd213ps %2, %1, %0" : "+x"(sum) : "x"(factor), "x"(addend));
    return sum;
  }
  static V join(V a, V b) { return _mm256_add_ps(a, b); }
};

struct MultiplyShorts {
  using V = __m256i;
  static constexpr int kChains = 12;
  V a = _mm256_set1_epi32(0x00030002), b = _mm256_set1_epi32(0x00050007);
  static V start(int i) { return _mm256_set1_epi32(i); }
  V step(V sum) const {
    V products;
    __asm__ volatile("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0"
                     : "+x"(sum), "=&x"(products)
                     : "x"(a), "x"(b));
    return sum;
  }
  static V join(V a, V b) { return _mm256_add_epi32(a, b); }
};

/// A look-up tells how many of four bits differ, for each byte.
struct LookUp {
  using V = __m256i;
  static constexpr int kChains = 12;
  V table = _mm256_set1_epi32(0x02010100), nibbles = _mm256_set1_epi32(0x0f070301);
  static V start(int i) { return _mm256_set1_epi32(i); }
  V step(V sum) const {
    V counts;
    __asm__ volatile("vpshufb %2, %3, %1\n\tvpaddb %1, %0, %0"
                     : "+x"(sum), "=&x"(counts)
                     : "x"(nibbles), "x"(table));
    return sum;
  }
  static V join(V a, V b) { return _mm256_add_epi8(a, b); }
};

constexpr PeakLoop kLoops[] = {
    loop_of<Fma>(MathType::f32, "vfmadd, 256 bits", 2 * 8),
    loop_of<MultiplyShorts>(MathType::int8, "vpmaddwd and vpaddd, 256 bits", 2 * 16),
    loop_of<LookUp>(MathType::binary, "vpshufb and vpaddb, 256 bits", 2 * 4 * 32),
};

}  // namespace

const PeakTable kPeakAvx2 = {"avx2", kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace ulp::kernels
