// NormalFloat of 4 bits (Dettmers et al. 2023, "QLoRA", section 3): 16 numbers in [-1, 1] at quantiles of the
// normal distribution, and a scale for each block of 64 weights.
//
//   codes    u8 [ceil(n / 2)]: the weights row by row, two in a byte, the first one in the high half
//   absmax   f32 [blocks]: the largest magnitude of each block; the last block may be shorter
//   w = table[code] absmax, rounded to float32 once; a code is the nearest to w / absmax, of two the lower.
//
// With double quantization the scales are codes themselves, of the signed dynamic type of 8 bits (Dettmers et
// al. 2022, "8-bit optimizers via block-wise quantization"), as the authors' program has it:
//   absmax   u8 [blocks], and f32 [ceil(blocks / 256)], the largest magnitude of absmax - offset in each 256
//   offset   f32 [1]: the mean of all absmax
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>

#include "ulp/base/export.h"

namespace ulp::lora {

inline constexpr int64_t kNf4Block = 64;        ///< weights that share a scale
inline constexpr int64_t kNf4ScaleBlock = 256;  ///< scales that share a scale of their own

/// The 16 numbers, ascending.
ULP_API const std::array<float, 16>& nf4_table();
/// The 256 numbers of the signed dynamic type, ascending.
ULP_API const std::array<float, 256>& dynamic_table();

/// Weights as codes, and the scales of their blocks.
struct Nf4Tensor {
  at::Tensor codes;                                          ///< u8, two in a byte
  at::Tensor absmax;                                         ///< f32, or u8 with double quantization
  std::optional<at::Tensor> scale_absmax = {}, offset = {};  ///< of double quantization
};

/// Quantizes float32 values of any shape, which must be finite. `double_quant`: scales become codes, too.
ULP_API Nf4Tensor quantize_nf4(const at::Tensor& values, bool double_quant);
/// The scales of the blocks, f32.
ULP_API at::Tensor nf4_scales(const Nf4Tensor& codes);

}  // namespace ulp::lora
