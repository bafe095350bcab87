// Signs of floats as bits: what binary layers read.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// Bytes of the bits of so many channels: eight a byte, each row from a byte of its own on.
constexpr int64_t bit_bytes(int64_t channels) {
  return (channels + 7) / 8;
}

/// Rows of channels, and where their sign changes.
struct SignRows {
  int64_t channels = 1;
  const float* threshold = nullptr;  ///< one a channel; null: 0
  const uint8_t* flip = nullptr;     ///< bit_bytes(channels), bit c % 8 of byte c / 8; null: none is set
};

/// bits [rows][bit_bytes(channels)]: bit c % 8 of byte c / 8 is 1 where the sign is -1. The sign is +1 where
/// x[r][c] >= threshold[c] (so that 0 and -0 have +1, and a NaN has -1), and the other one where the flip's bit is set. The
/// bits behind the last channel are 0. The same on every instruction set. Throws ulp::Error for less than one channel.
ULP_API void pack_signs(const SignRows& signs, int64_t rows, const float* x, uint8_t* bits, Isa isa,
                        const Parallel& parallel);

}  // namespace ulp::kernels
