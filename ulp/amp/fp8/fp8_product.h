// Products of quantized matrices, and the accelerator's where it has them; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ulp/amp/fp8/fp8_tensor.h"

namespace ulp::amp {

/// a [m, k] times the transpose of b [n, k], f32 [m, n]: codes' numbers are multiplied and summed in f32, and the sums
/// multiplied by the scales; scales of blocks along k are multiplied into the numbers before.
at::Tensor fp8_product(const Fp8Tensor& a, const Fp8Tensor& b, bool fast_accumulation);

/// The same by at::_scaled_mm; nothing where device, formats or sizes do not allow it.
std::optional<at::Tensor> scaled_mm(const Fp8Tensor& a, const Fp8Tensor& b, bool fast_accumulation);

}  // namespace ulp::amp
