#include "ulp/amp/fp8/fp8_product.h"

#include <torch/types.h>

namespace ulp::amp {

at::Tensor fp8_product(const Fp8Tensor& a, const Fp8Tensor& b, bool fast_accumulation) {
  if (auto done = scaled_mm(a, b, fast_accumulation)) return *std::move(done);
  const bool whole = a.scale_inv.dim() == 0 && b.scale_inv.dim() == 0;
  if (!whole) return at::mm(a.dequantized(), b.dequantized().t());
  return at::mm(a.values(), b.values().t()).mul_(a.scale_inv * b.scale_inv);
}

}  // namespace ulp::amp
