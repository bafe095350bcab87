// One bit an element for tensors that hold no more.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "ulp/base/export.h"

namespace ulp::memory {

/// A tensor of two values by their bit patterns. Element i of its memory is bit i % 8 of byte i / 8.
struct BitCodes {
  at::Tensor bits;             ///< uint8
  uint32_t zero = 0, one = 0;  ///< the patterns that the bits stand for
};

/// The bits of a dense tensor on the CPU whose elements (bool, or floating point of 16 or 32 bits) are zeros
/// and one other pattern; nothing where it holds another one. Exact.
ULP_API std::optional<BitCodes> encode_two_values(const at::Tensor& dense);

/// The bits of the elements of a dense floating-point tensor on the CPU that are above `low` and below `high`
/// (NaN: no bound), or NaN. They come back as `inside`, the others as `low`. For backward formulas that ask
/// no more.
ULP_API BitCodes encode_range(const at::Tensor& dense, double low, double high, double inside);

/// Writes the elements into a dense tensor.
ULP_API void decode_bits(const BitCodes& codes, at::Tensor& dense);

}  // namespace ulp::memory
