// Elementwise conversions between tensors and codes; internal to the room. On the CPU by the kernels of
// ulp/kernels/convert, elsewhere by LibTorch's casts.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ulp/formats/format.h"
#include "ulp/formats/random_bits.h"

namespace ulp::amp {

/// x as a dense f32 tensor, in its own order of dimensions.
at::Tensor dense_float(const at::Tensor& x);

/// Codes (uint8, strides of x) of x * scale; x dense f32, scale f32 with one element.
at::Tensor encode_scaled(const formats::Format& format, const at::Tensor& x, const at::Tensor& scale);
/// Codes of x.
at::Tensor encode(const formats::Format& format, const at::Tensor& x,
                  std::optional<formats::RandomKey> random = std::nullopt);
/// f32 numbers of codes, with their strides.
at::Tensor decode(const formats::Format& format, const at::Tensor& codes);

}  // namespace ulp::amp
