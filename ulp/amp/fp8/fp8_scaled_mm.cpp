// fp8 products on devices that have them. Run on processors in the tests, on no GPU yet: docs/gpu.md.
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "ulp/amp/fp8/fp8_product.h"

namespace ulp::amp {

namespace {

constexpr int64_t kMultiple = 16;  // of k and n

at::ScalarType type_of(const formats::Format& format) {
  return format.mantissa_bits == 3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
}

/// Columns that share a scale: of all of a row, or of a block.
int64_t columns_of_scale(const Fp8Tensor& x) {
  return x.scale_inv.dim() == 0 || x.scale_inv.size(1) == 1 ? x.codes.size(1) : x.block.columns;
}

/// Rows that share a scale.
int64_t rows_of_scale(const Fp8Tensor& x) {
  return x.scale_inv.dim() == 0 || x.scale_inv.size(0) == 1 ? x.codes.size(0)
                                                            : std::max<int64_t>(x.block.rows, 1);
}

/// Codes of 8 bits with one scale for all, one a row, or one a block.
bool is_8_bit(const Fp8Tensor& x) {
  if (x.format->bits() != 8 || x.codes.dim() != 2) return false;
  if (x.scale_inv.dim() == 0) return true;
  const auto blocks = [](int64_t size, int64_t block) { return block < 1 ? 0 : (size + block - 1) / block; };
  return x.scale_inv.dim() == 2 && x.scale_inv.size(0) == blocks(x.codes.size(0), rows_of_scale(x)) &&
         x.scale_inv.size(1) == blocks(x.codes.size(1), columns_of_scale(x));
}

/// The scale of each row in the columns from `begin` on, which share one: f32 [rows].
at::Tensor row_scales(const Fp8Tensor& x, int64_t begin) {
  const at::Tensor column = x.scale_inv.select(1, begin / columns_of_scale(x));
  const int64_t rows = rows_of_scale(x);
  return rows == 1 ? column : column.repeat_interleave(rows).slice(0, 0, x.codes.size(0));
}

/// True if this device multiplies fp8 matrices: asked once, by a small product.
bool has_fp8_products(const at::Device& device) {
  constexpr size_t kDevices = 64;
  static std::array<std::atomic<int>, kDevices> known{};  // 0: not asked, 1: yes, 2: no
  const auto index = static_cast<size_t>(std::max<int>(device.index(), 0));
  if (index >= kDevices) return false;
  if (known[index] == 0) {
    const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
    const at::Tensor one = at::ones({}, options);
    const at::Tensor codes = at::zeros({kMultiple, kMultiple}, options.dtype(at::kByte));
    const Fp8Tensor zeros{.format = &formats::find("fp8_e4m3fn"), .codes = codes, .scale_inv = one};
    try {
      scaled_mm(zeros, zeros, /*fast_accumulation=*/true);
      known[index] = 1;
    } catch (const c10::Error&) {
      known[index] = 2;
    }
  }
  return known[index] == 1;
}

}  // namespace

int64_t columns_of_scales(const Fp8Tensor& a, const Fp8Tensor& b) {
  if (a.scale_inv.dim() == 0 && b.scale_inv.dim() == 0) return 0;
  return std::min(columns_of_scale(a), columns_of_scale(b));
}

at::Tensor scaled_mm(const Fp8Tensor& a, const Fp8Tensor& b, bool fast_accumulation) {
  const auto product = [&](const at::Tensor& left, const at::Tensor& right, const at::Tensor& scale_a,
                           const at::Tensor& scale_b) {
    return at::_scaled_mm(left.contiguous().view(type_of(*a.format)),
                          right.contiguous().view(type_of(*b.format)).t(), scale_a, scale_b, /*bias=*/{},
                          /*scale_result=*/{}, at::kFloat, fast_accumulation);
  };
  const int64_t k = a.codes.size(1), step = columns_of_scales(a, b);
  if (step == 0) return product(a.codes, b.codes, a.scale_inv.contiguous(), b.scale_inv.contiguous());
  // LibTorch's own products with a scale a row are rounded to bf16, and those of blocks are of some cards:
  // the sums of codes that share a scale are scaled here.
  const at::Tensor one = at::ones({}, a.scale_inv.options());
  at::Tensor sum;
  for (int64_t begin = 0; begin < k; begin += step) {
    const int64_t end = std::min(k, begin + step);
    at::Tensor part = product(a.codes.slice(1, begin, end), b.codes.slice(1, begin, end), one, one);
    part.mul_(a.scale_inv.dim() == 0 ? a.scale_inv : row_scales(a, begin).unsqueeze(1));
    part.mul_(b.scale_inv.dim() == 0 ? b.scale_inv : row_scales(b, begin).unsqueeze(0));
    sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum;
}

bool takes_scaled_mm(const Fp8Tensor& a, const Fp8Tensor& b) {
  if (!is_8_bit(a) || !is_8_bit(b)) return false;
  const int64_t k = a.codes.size(1), n = b.codes.size(0);
  if (k % kMultiple != 0 || n % kMultiple != 0 || k == 0) return false;
  const int64_t step = columns_of_scales(a, b);
  if (step != 0) {
    const auto ends = [&](const Fp8Tensor& x) {
      return columns_of_scale(x) == k || columns_of_scale(x) % step == 0;
    };
    if (step % kMultiple != 0 || !ends(a) || !ends(b)) return false;
  }
  const bool both_wide = a.format->mantissa_bits == 2 && b.format->mantissa_bits == 2;
  return !both_wide && has_fp8_products(a.codes.device());
}

}  // namespace ulp::amp
