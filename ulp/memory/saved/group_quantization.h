// Codes of 8 or 4 bits for groups of neighbours, rounded stochastically, so that the mean of what comes back
// is what was put in (ActNN, Chen et al., arXiv:2104.14129).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "ulp/base/export.h"
#include "ulp/formats/random_bits.h"

namespace ulp::memory {

/// A group of n values holds floor((x - least) / step + u), u uniform in [0, 1), step = (largest - least) /
/// (2^bits - 1). Its least value, and 0 where that is the least, comes back as it was.
struct GroupCodes {
  at::Tensor codes;  ///< uint8 [values], or [ceil(values / 2)] of 4 bits, the first in the low half
  at::Tensor least;  ///< float [groups]
  at::Tensor step;   ///< float [groups]
};

/// The codes of `count` values of a dense tensor in the order of its memory, fp32, bf16 or fp16 on the CPU.
/// Nothing where a value is not finite. `bits`: 8 or 4; `group` a multiple of 64.
ULP_API std::optional<GroupCodes> encode_groups(const at::Tensor& dense, int bits, int64_t group,
                                                formats::RandomKey key);

/// Writes the values into a dense tensor of as many.
ULP_API void decode_groups(const GroupCodes& codes, int bits, int64_t group, at::Tensor& dense);

}  // namespace ulp::memory
