// Plain vectors of the compiler, which it turns into what every machine of this kind has.
#include "ulp/kernels/peak/peak_body.h"

namespace ulp::kernels {
namespace {

using Floats = float __attribute__((vector_size(16)));
using Words = uint64_t __attribute__((vector_size(16)));

/// A multiplication and an addition.
struct MultiplyAdd {
  using V = Floats;
  static constexpr int kChains = 10;
  V factor{0.999F, 0.999F, 0.999F, 0.999F}, addend{0.5F, 0.5F, 0.5F, 0.5F};
  static V start(int i) { return Floats{} + static_cast<float>(i); }
  V step(V sum) const { return sum * factor + addend; }
  static V join(V a, V b) { return a + b; }
};

/// Bits counted by sums of neighbours, as the portable kernel of binary layers does.
struct CountWords {
  using V = Words;
  static constexpr int kChains = 4;
  V weights{0x123456789abcdef0U, 0xfedcba9876543210U};
  static V start(int i) { return Words{} + static_cast<uint64_t>(i); }
  V step(V sum) const {
    V x = sum ^ weights;
    x -= x >> 1 & 0x5555555555555555U;
    x = (x & 0x3333333333333333U) + (x >> 2 & 0x3333333333333333U);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fU;
    return sum + x;  // counts of bytes, which a kernel adds up more seldom
  }
  static V join(V a, V b) { return a + b; }
};

#ifdef __SSE2__
using Shorts = int16_t __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));

/// Products of 16 bits, two a lane: exact for codes of 8 bits.
struct MultiplyShorts {
  using V = Ints;
  static constexpr int kChains = 10;
  Shorts a{1, 2, 3, 4, 5, 6, 7, 8}, b{8, 7, 6, 5, 4, 3, 2, 1};
  static V start(int i) { return Ints{} + i; }
  V step(V sum) const {
    Shorts products;
    __asm__ volatile("movdqa %2, %1\n\tpmaddwd %3, %1\n\tpaddd %1, %0"
                     : "+x"(sum), "=&x"(products)
                     : "x"(a), "x"(b));
    return sum;
  }
  static V join(V a, V b) { return a + b; }
};
constexpr PeakLoop kShorts = loop_of<MultiplyShorts>(MathType::int8, "pmaddwd and paddd, 128 bits", 2 * 8);
#elif defined(__aarch64__)
using Shorts = int16_t __attribute__((vector_size(8)));
using Ints = int32_t __attribute__((vector_size(16)));

/// Products of 16 bits, one a lane: exact for codes of 8 bits.
struct MultiplyShorts {
  using V = Ints;
  static constexpr int kChains = 10;
  Shorts a{1, 2, 3, 4}, b{8, 7, 6, 5};
  static V start(int i) { return Ints{} + i; }
  V step(V sum) const {
    __asm__ volatile("smlal %0.4s, %1.4h, %2.4h" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
  }
  static V join(V a, V b) { return a + b; }
};
constexpr PeakLoop kShorts = loop_of<MultiplyShorts>(MathType::int8, "smlal, 128 bits", 2 * 4);
#endif

constexpr PeakLoop kLoops[] = {
    loop_of<MultiplyAdd>(MathType::f32, "multiplication and addition, 128 bits", 2 * 4),
    kShorts,
    loop_of<CountWords>(MathType::binary, "counting in words of 64 bits", 2 * 128),
};

}  // namespace

const PeakTable kPeakPortable = {"portable", kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace ulp::kernels
