// The contract between pack_signs() and its kernels, compiled for each instruction set. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

namespace ulp::kernels {

struct SignArgs {
  const float* x;
  uint8_t* bits;
  int64_t rows, channels;
  const float* threshold;  ///< [channels], or null
  const uint8_t* flip;     ///< or null
};

using SignFn = void (*)(const SignArgs&);

SignFn pack_signs_portable(), pack_signs_avx2(), pack_signs_avx512(), pack_signs_neon();

/// The byte of the first `count` channels, at most 8, from channel c on.
static inline uint8_t sign_byte(const SignArgs& s, const float* x, int64_t c, int64_t count) {
  unsigned byte = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float threshold = s.threshold == nullptr ? 0.0F : s.threshold[c + i];
    byte |= static_cast<unsigned>(!(x[c + i] >= threshold)) << i;
  }
  if (s.flip != nullptr) byte ^= s.flip[c / 8] & ((1U << count) - 1U);
  return static_cast<uint8_t>(byte);
}

}  // namespace ulp::kernels
