// Bits of whole vectors counted by CNT.
#include "ulp/kernels/isa/vec_neon.h"
// after the vector type
#include "ulp/kernels/binary/word_body.h"

namespace ulp::kernels {
namespace {

struct WordsNeon {
  using Floats = VecNeon;
  /// Eight words; counts of each stand in two lanes of 32 bits.
  struct I {
    uint32x4_t of[4];
  };
  struct Counts {
    uint8x16_t of[4];
  };
  static I zero() { return {{vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)}}; }
  static I load(const void* p) {
    const auto* bytes = static_cast<const uint8_t*>(p);
    I v;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) v.of[i] = vreinterpretq_u32_u8(vld1q_u8(bytes + i * 16));
    return v;
  }
  static I broadcast(const uint8_t* p) {
    uint64_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    const uint32x4_t all = vreinterpretq_u32_u64(vdupq_n_u64(word));
    return {{all, all, all, all}};
  }
  static Counts count(const I& a, const I& b) {
    Counts v;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) v.of[i] = vcntq_u8(vreinterpretq_u8_u32(veorq_u32(a.of[i], b.of[i])));
    return v;
  }
  static I add(const I& a, const Counts& b) {
    I v;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) v.of[i] = vpadalq_u16(a.of[i], vpaddlq_u8(b.of[i]));
    return v;
  }
  static void store_low(int32_t* to, const I& v) {
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2)
      vst1q_s32(to + i * 2, vreinterpretq_s32_u32(vpaddq_u32(v.of[i], v.of[i + 1])));
  }
  static unsigned below(const int32_t* start, const int32_t* counts, const int32_t* threshold) {
    const uint32x4_t places = {1, 2, 4, 8};
    unsigned bits = 0;
#pragma GCC unroll 4
    for (int i = 0; i < kPanelOutputs; i += 4) {
      const int32x4_t dot = vsubq_s32(vld1q_s32(start + i), vshlq_n_s32(vld1q_s32(counts + i), 1));
      bits |= vaddvq_u32(vandq_u32(vcltq_s32(dot, vld1q_s32(threshold + i)), places)) << i;
    }
    return bits;
  }
};

}  // namespace

// Three rows: 24 registers of counts.
const BinaryKernels kBinaryNeon = {
    "neon",
    true,
    kPanelOutputs,
    {3, 0, 0},
    {{nullptr, word_tile<WordsNeon, 1>, word_tile<WordsNeon, 2>, word_tile<WordsNeon, 3>}, {}, {}}};

}  // namespace ulp::kernels
