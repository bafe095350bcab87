// 4 lanes of Advanced SIMD for kernels; only for files of 64-bit Arm. Everything has internal linkage.
#pragma once

#include <arm_neon.h>

#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

struct VecNeon {
  using F = float32x4_t;
  using I = int32x4_t;
  static constexpr int kLanes = 4;
  static constexpr bool kStoresBytes = true;

  static F loadf(const float* p) { return vld1q_f32(p); }
  static I loadi(const void* p) { return vreinterpretq_s32_u8(vld1q_u8(static_cast<const uint8_t*>(p))); }
  static void storef(float* p, F v) { vst1q_f32(p, v); }
  static void storei(int32_t* p, I v) { vst1q_s32(p, v); }
  static F set1(float v) { return vdupq_n_f32(v); }
  static I seti(int32_t v) { return vdupq_n_s32(v); }
  static F to_float(I v) { return vcvtq_f32_s32(v); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static I addi(I a, I b) { return vaddq_s32(a, b); }
  static I subi(I a, I b) { return vsubq_s32(a, b); }
  static I muli(I a, I b) { return vmulq_s32(a, b); }
  /// The second operand where either is a NaN, as on x86: the callers rely on it. FMAX would give the NaN.
  static F max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static F min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static I broadcast(const uint8_t* p) {
    int32_t unit;
    __builtin_memcpy(&unit, p, 4);
    return vdupq_n_s32(unit);
  }

  static F widen_bf16(uint16x4_t v) { return vreinterpretq_f32_u32(vshll_n_u16(v, 16)); }
  static F load_bf16(const void* p) { return widen_bf16(vld1_u16(static_cast<const uint16_t*>(p))); }
  static I load_u8(const void* p) {
    uint32_t bytes;
    __builtin_memcpy(&bytes, p, 4);
    const uint16x8_t words = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(words)));
  }

  static I load_s8(const void* p) {
    int32_t bytes;
    __builtin_memcpy(&bytes, p, 4);
    const int16x8_t words = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(bytes)));
    return vmovl_s16(vget_low_s16(words));
  }
  /// Four bits of each lane, from bit 4 j on, as a number with a sign.
  template <int kJ>
  static I signed_nibble(I words) {
    return vshrq_n_s32(vshlq_n_s32(words, 28 - 4 * kJ), 28);
  }

  /// The low (0) or high (1) four bits of each byte as a byte.
  template <int kHalf>
  static I nibbles(I words) {
    const uint8x16_t bytes = vreinterpretq_u8_s32(words);
    return vreinterpretq_s32_u8(kHalf == 0 ? vandq_u8(bytes, vdupq_n_u8(15)) : vshrq_n_u8(bytes, 4));
  }
  static I xori(I a, I b) { return veorq_s32(a, b); }

  /// The first n elements as floats; nothing behind them is read.
  static F load_as_float(DataType type, const void* data, int64_t i, int64_t n) {
    if (n < kLanes) {
      float part[kLanes] = {};
      for (int64_t k = 0; k < n; ++k) part[k] = kernels::load_as_float(type, data, i + k);
      return vld1q_f32(part);
    }
    if (type == DataType::f32) return loadf(static_cast<const float*>(data) + i);
    if (type == DataType::bf16) return load_bf16(static_cast<const uint16_t*>(data) + i);
    return to_float(load_u8(static_cast<const uint8_t*>(data) + i));
  }
  static void store_f32(void* data, int64_t i, int64_t n, F v) {
    float* to = static_cast<float*>(data) + i;
    if (n >= kLanes) return vst1q_f32(to, v);
    float part[kLanes];
    vst1q_f32(part, v);
    for (int64_t k = 0; k < n; ++k) to[k] = part[k];
  }
  static void store_bf16(void* data, int64_t i, int64_t n, F v) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    store_words(data, i, n, vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet), 16));
  }
  static void store_words(void* data, int64_t i, int64_t n, uint16x4_t words) {
    uint16_t* to = static_cast<uint16_t*>(data) + i;
    if (n >= kLanes) return vst1_u16(to, words);
    uint16_t part[kLanes];
    vst1_u16(part, words);
    for (int64_t k = 0; k < n; ++k) to[k] = part[k];
  }
  /// v is inside [-zero, 255 - zero]; rounds half to even.
  static void store_u8(void* data, int64_t i, int64_t n, F v, I zero) {
    const uint16x4_t words = vqmovun_s32(vaddq_s32(vcvtnq_s32_f32(v), zero));
    const uint8x8_t bytes = vqmovn_u16(vcombine_u16(words, words));
    uint8_t* to = static_cast<uint8_t*>(data) + i;
    uint8_t part[8];
    vst1_u8(part, bytes);
    if (n >= kLanes) {
      __builtin_memcpy(to, part, kLanes);
    } else {
      for (int64_t k = 0; k < n; ++k) to[k] = part[k];
    }
  }

  /// Rounded codes of M x NB vectors -> bytes at y + m * y_step: four vectors become one by saturating narrowing.
  struct Bytes {
    int16x8_t zero;
    uint8x16_t low;
  };
  static Bytes byte_limits(int32_t zero, float lo) {
    const int code = static_cast<int32_t>(round_even(lo)) + zero;
    return {vdupq_n_s16(static_cast<int16_t>(zero)), vdupq_n_u8(static_cast<uint8_t>(code))};
  }
  static I round(F v) { return vcvtnq_s32_f32(v); }
  static uint8x16_t pack4(I a, I b, I c, I d, const Bytes& limits) {
    const int16x8_t low = vqaddq_s16(vcombine_s16(vqmovn_s32(a), vqmovn_s32(b)), limits.zero);
    const int16x8_t high = vqaddq_s16(vcombine_s16(vqmovn_s32(c), vqmovn_s32(d)), limits.zero);
    return vmaxq_u8(vcombine_u8(vqmovun_s16(low), vqmovun_s16(high)), limits.low);
  }
  template <int M, int NB>
  static inline __attribute__((always_inline)) void store_bytes(I (&q)[M][NB], const Bytes& limits,
                                                                uint8_t* y, int64_t y_step) {
    // Four vectors at a time: some rows, one, or a part of one.
    constexpr int kVectors = M * NB, kRows = NB < 4 ? 4 / NB : 1, kBytes = (NB < 4 ? NB : 4) * kLanes;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; v += 4) {
      const auto at = [&](int i) __attribute__((always_inline)) {
        const int k = v + i < kVectors ? v + i : kVectors - 1;
        return q[k / NB][k % NB];
      };
      uint8_t bytes[16];
      vst1q_u8(bytes, pack4(at(0), at(1), at(2), at(3), limits));
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const int first = v + row * NB;
        uint8_t* to = y + first / NB * y_step + first % NB * kLanes;
        if (first < kVectors) __builtin_memcpy(to, bytes + row * kBytes, kBytes);
      }
    }
  }
};

}  // namespace
}  // namespace ulp::kernels
