// Quantization simulated in floating point, for training: the forward pass writes the rounded values and,
// packed into one bit an element, where the gradient passes; the backward pass applies the bits.
//
// With r = round_half_even(x * (1 / scale)), zero point z and codes [qmin, qmax]:
//   value  = clamp(r, qmin - z, qmax - z) * scale
//   inside = qmin - z <= r <= qmax - z           (false for NaN, whose value is that of qmin)
// in fp32, one rounding an operation: every instruction set and any number of threads gives the same bits.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/element.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/training/fake_quant_ops.h"

namespace ulp::kernels {

/// 64-bit words of a mask over n elements; element i is bit i % 64 of word i / 64, unused bits are 0.
constexpr int64_t mask_words(int64_t n) {
  return (n + kMaskBits - 1) / kMaskBits;
}

/// Fake-quantizes n elements in one pass. `type` is f32 or bf16, of x and y alike; bf16 is computed in fp32
/// and the value rounded half to even. `inside` has mask_words(n) words, or is null where no gradient is
/// wanted. x and y may be the same buffer. Throws ulp::Error for another type.
ULP_API void fake_quantize(const FakeQuant& how, DataType type, const void* x, int64_t n, void* y,
                           uint64_t* inside, Isa isa, const Parallel& parallel);

/// out = gradient where the bit is set, +0 elsewhere, whatever the gradient is there; n elements of 2, 4 or
/// 8 bytes, in buffers that do not overlap. Throws ulp::Error for another size.
ULP_API void keep_inside(const uint64_t* inside, int64_t element_bytes, const void* gradient, int64_t n,
                         void* out, Isa isa, const Parallel& parallel);

}  // namespace ulp::kernels
