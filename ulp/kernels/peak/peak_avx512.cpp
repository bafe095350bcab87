#include <immintrin.h>

#include "ulp/kernels/peak/peak_body.h"

namespace ulp::kernels {
namespace {

struct Fma {
  using V = __m512;
  static constexpr int kChains = 20;
  V factor = _mm512_set1_ps(0.999F), addend = _mm512_set1_ps(0.5F);
  static V start(int i) { return _mm512_set1_ps(static_cast<float>(i)); }
  V step(V sum) const {
    __asm__ volatile("vfmadd213ps %2, %1, %0" : "+v"(sum) : "v"(factor), "v"(addend));
    return sum;
  }
  static V join(V a, V b) { return _mm512_add_ps(a, b); }
};

struct MultiplyShorts {
  using V = __m512i;
  static constexpr int kChains = 20;
  V a = _mm512_set1_epi32(0x00030002), b = _mm512_set1_epi32(0x00050007);
  static V start(int i) { return _mm512_set1_epi32(i); }
  V step(V sum) const {
    V products;
    __asm__ volatile("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0"
                     : "+v"(sum), "=&v"(products)
                     : "v"(a), "v"(b));
    return sum;
  }
  static V join(V a, V b) { return _mm512_add_epi32(a, b); }
};

/// A look-up tells how many of four bits differ, for each byte.
struct LookUp {
  using V = __m512i;
  static constexpr int kChains = 20;
  V table = _mm512_set1_epi32(0x02010100), nibbles = _mm512_set1_epi32(0x0f070301);
  static V start(int i) { return _mm512_set1_epi32(i); }
  V step(V sum) const {
    V counts;
    __asm__ volatile("vpshufb %2, %3, %1\n\tvpaddb %1, %0, %0"
                     : "+v"(sum), "=&v"(counts)
                     : "v"(nibbles), "v"(table));
    return sum;
  }
  static V join(V a, V b) { return _mm512_add_epi8(a, b); }
};

constexpr PeakLoop kLoops[] = {
    loop_of<Fma>(MathType::f32, "vfmadd, 512 bits", 2 * 16),
    loop_of<MultiplyShorts>(MathType::int8, "vpmaddwd and vpaddd, 512 bits", 2 * 32),
    loop_of<LookUp>(MathType::binary, "vpshufb and vpaddb, 512 bits", 2 * 4 * 64),
};

}  // namespace

const PeakTable kPeakAvx512 = {"avx512", kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace ulp::kernels
