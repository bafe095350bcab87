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

/// One scale for all, or one a row.
bool is_8_bit(const Fp8Tensor& x) {
  if (x.format->bits() != 8 || x.codes.dim() != 2) return false;
  const bool rowwise =
      x.scale_inv.dim() == 2 && x.scale_inv.size(0) == x.codes.size(0) && x.scale_inv.size(1) == 1;
  return x.scale_inv.dim() == 0 || rowwise;
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

at::Tensor scaled_mm(const Fp8Tensor& a, const Fp8Tensor& b, bool fast_accumulation) {
  const at::Tensor left = a.codes.contiguous().view(type_of(*a.format));
  const at::Tensor right = b.codes.contiguous().view(type_of(*b.format)).t();
  const auto product = [&](const at::Tensor& scale_a, const at::Tensor& scale_b) {
    return at::_scaled_mm(left, right, scale_a, scale_b, /*bias=*/{}, /*scale_result=*/{}, at::kFloat,
                          fast_accumulation);
  };
  if (a.scale_inv.dim() == 0 && b.scale_inv.dim() == 0)
    return product(a.scale_inv.contiguous(), b.scale_inv.contiguous());
  // LibTorch's own products with a scale a row are rounded to bf16: the sums of codes are scaled here.
  const at::Tensor one = at::ones({}, a.scale_inv.options());
  return product(one, one).mul_(a.scale_inv).mul_(b.scale_inv.t());
}

bool takes_scaled_mm(const Fp8Tensor& a, const Fp8Tensor& b) {
  if (!is_8_bit(a) || !is_8_bit(b)) return false;
  const int64_t k = a.codes.size(1), n = b.codes.size(0);
  if (k % kMultiple != 0 || n % kMultiple != 0) return false;
  const bool both_wide = a.format->mantissa_bits == 2 && b.format->mantissa_bits == 2;
  return !both_wide && has_fp8_products(a.codes.device());
}

}  // namespace ulp::amp
