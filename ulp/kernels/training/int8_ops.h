// The table of loops that turn floats into int8 codes, which each instruction set fills in. Plain data, see
// float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/formats/random_bits.h"

namespace ulp::kernels {

/// Functions in pairs are for elements of f32 and of bf16.
struct Int8Ops {
  /// The bits of the largest |x[i]|; of a NaN or an infinity where there is one.
  uint32_t (*largest[2])(const void* x, int64_t n);
  /// largest[i] = max(largest[i], bits of |x[i]|).
  void (*largest_each[2])(const void* x, int64_t n, uint32_t* largest);
  /// codes[i] = round(x[i] * inverse[0 or i]), half to even; [type][one inverse, one each]. No product is
  /// above 127.5.
  void (*nearest[2][2])(const void* x, int64_t n, const float* inverse, int8_t* codes);
  /// The same, rounded up where the upper 24 bits of random[i], as a fraction, are below that of the number.
  void (*stochastic[2][2])(const void* x, int64_t n, const float* inverse, const uint32_t* random,
                           int8_t* codes);
  /// formats::random_bits_of_group().
  void (*random)(formats::RandomKey key, uint64_t group, uint32_t* words);
  /// to[c][r] = from[r][c].
  void (*transpose)(const int8_t* from, int64_t from_step, int64_t rows, int64_t columns, int8_t* to,
                    int64_t to_step);
};

extern const Int8Ops kInt8OpsPortable, kInt8OpsAvx2, kInt8OpsAvx512;

}  // namespace ulp::kernels
