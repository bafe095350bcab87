// Int8 codes and their products by LibTorch's operators, for devices without kernels of ours.
#include <torch/types.h>

#include "ulp/amp/int8/int8_tensor.h"

namespace ulp::amp {
namespace {

using at::Tensor;
using kernels::Int8Scales;
using kernels::kInt8Block;

int64_t padding(int64_t n, int64_t multiple) {
  return (multiple - n % multiple) % multiple;
}

Tensor padded(const Tensor& matrix, int64_t row_multiple, int64_t column_multiple) {
  return at::constant_pad_nd(
      matrix, {0, padding(matrix.size(1), column_multiple), 0, padding(matrix.size(0), row_multiple)});
}

/// As [row of blocks][32][column of blocks][32].
Tensor in_blocks(const Tensor& matrix) {
  const Tensor whole = padded(matrix, kInt8Block, kInt8Block);
  return whole.view({whole.size(0) / kInt8Block, kInt8Block, whole.size(1) / kInt8Block, kInt8Block});
}

/// The largest magnitude of those that share a scale, in the shape of the scales.
Tensor largest(const Tensor& x, Int8Scales scales) {
  switch (scales) {
    case Int8Scales::rows:
      return x.abs().amax(1);
    case Int8Scales::columns:
      return x.abs().amax(0);
    case Int8Scales::tensor:
      return x.abs().amax().view({1});
    case Int8Scales::blocks:
      break;
  }
  return in_blocks(x.abs()).amax({1, 3});
}

/// Scales in a shape that broadcasts over the matrix.
Tensor over(const Tensor& scale, Int8Scales scales, const Tensor& x) {
  if (scales == Int8Scales::rows) return scale.unsqueeze(1);
  if (scales != Int8Scales::blocks) return scale;
  return scale.repeat_interleave(kInt8Block, 0)
      .repeat_interleave(kInt8Block, 1)
      .narrow(0, 0, x.size(0))
      .narrow(1, 0, x.size(1));
}

/// float(a b^T) with the sums exact in int32. The operator wants sizes in multiples of 8 and more than 16
/// rows.
Tensor sums(const Tensor& a, const Tensor& b) {
  constexpr int64_t kMultiple = 32;
  const Tensor whole = at::_int_mm(padded(a, kMultiple, kMultiple), padded(b, kMultiple, kMultiple).t());
  return whole.narrow(0, 0, a.size(0)).narrow(1, 0, b.size(0)).to(at::kFloat);
}

Tensor block_sums(const Int8Tensor& a, const Int8Tensor& b) {
  Tensor total = at::zeros({a.codes.size(0), b.codes.size(0)}, a.scale.options());
  for (int64_t block = 0; block < a.scale.size(1); ++block) {
    const auto part = [&](const Tensor& codes) {
      const int64_t begin = block * kInt8Block;
      return codes.narrow(1, begin, std::min(kInt8Block, codes.size(1) - begin));
    };
    const Tensor scale = at::outer(a.scale.select(1, block), b.scale.select(1, block));
    total = total + sums(part(a.codes), part(b.codes)) * over(scale, Int8Scales::blocks, total);
  }
  return total;
}

}  // namespace

Int8Pair int8_quantize_generic(const Tensor& matrix, const Int8How& how) {
  constexpr float kLargestCode = 127, kSmallestScale = 0x1p-126F;
  const Tensor x = matrix.to(at::kFloat);
  const Tensor most = largest(x, how.scales);
  Tensor scale = at::where(most == 0, at::ones_like(most), (most / kLargestCode).clamp_min(kSmallestScale));
  scale = at::where(at::isfinite(most), scale, at::full_like(scale, NAN));
  const Tensor v = (x * over(scale.reciprocal(), how.scales, x))
                       .nan_to_num(-kLargestCode)
                       .clamp(-kLargestCode, kLargestCode);
  const Tensor codes =
      (how.key ? at::floor(v + at::rand_like(v)).clamp_max(kLargestCode) : at::round(v)).to(at::kChar);
  Int8Pair pair;
  if (how.straight) pair.straight = {codes, scale};
  if (how.across) pair.across = {codes.t().contiguous(), scale.dim() == 2 ? scale.t().contiguous() : scale};
  return pair;
}

Tensor int8_product_generic(const Int8Tensor& a, const Int8Tensor& b, const Tensor& bias,
                            at::ScalarType dtype) {
  Tensor y;
  if (a.scale.dim() == 2) {
    y = block_sums(a, b);
  } else {
    y = sums(a.codes, b.codes) * (a.scale.unsqueeze(1) * b.scale);
  }
  if (bias.defined()) y = y + bias.to(at::kFloat);
  return y.to(dtype);
}

}  // namespace ulp::amp
