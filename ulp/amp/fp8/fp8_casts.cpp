#include "ulp/amp/fp8/fp8_casts.h"

#include <torch/types.h>

#include <algorithm>
#include <array>

#include "ulp/base/error.h"
#include "ulp/kernels/convert/convert.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::amp {

namespace {

constexpr int64_t kChunk = 2048;     // of values that stay in the first-level cache
constexpr int64_t kGrain = 1 << 15;  // values that are worth a thread

constexpr kernels::ArrayCast kSaturating{.overflow = formats::Overflow::saturate};

/// LibTorch's type of the same codes.
at::ScalarType cast_type(const formats::Format& format) {
  if (&format == &formats::find("fp8_e4m3fn")) return at::kFloat8_e4m3fn;
  if (&format == &formats::find("fp8_e5m2")) return at::kFloat8_e5m2;
  fail("amp.fp8", "expected a tensor on the CPU for ", format.name, ", which LibTorch has no casts of");
}

/// LibTorch's casts differ in what they do beyond the largest number.
at::Tensor encode_by_casts(const formats::Format& format, const at::Tensor& x) {
  return x.clamp(format.lowest(), format.max()).to(cast_type(format)).view(at::kByte);
}

}  // namespace

at::Tensor dense_float(const at::Tensor& x) {
  const at::Tensor values = x.detach().to(at::kFloat);
  return values.is_non_overlapping_and_dense() ? values : values.contiguous();
}

at::Tensor encode_scaled(const formats::Format& format, const at::Tensor& x, const at::Tensor& scale) {
  if (!x.is_cpu()) return encode_by_casts(format, x * scale);
  at::Tensor codes = at::empty_like(x, x.options().dtype(at::kByte));
  const auto* from = x.const_data_ptr<float>();
  auto* to = codes.mutable_data_ptr<uint8_t>();
  const float factor = scale.item<float>();
  const kernels::Isa isa = kernels::selected_isa();
  libtorch::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    std::array<float, kChunk> scaled;
    for (int64_t i = begin; i < end; i += kChunk) {
      const int64_t n = std::min(kChunk, end - i);
      for (int64_t j = 0; j < n; ++j) scaled[j] = from[i + j] * factor;
      kernels::encode(format, scaled.data(), to + i, n, kSaturating, isa, SerialParallel());
    }
  });
  return codes;
}

at::Tensor encode(const formats::Format& format, const at::Tensor& x,
                  std::optional<formats::RandomKey> random) {
  if (!x.is_cpu()) {
    if (random) fail("amp.fp8", "expected a tensor on the CPU for stochastic rounding, got ", x.device());
    return encode_by_casts(format, x);
  }
  kernels::ArrayCast cast = kSaturating;
  if (random) {
    cast.rounding = formats::Rounding::stochastic;
    cast.key = *random;
  }
  at::Tensor codes = at::empty_like(x, x.options().dtype(at::kByte));
  kernels::encode(format, x.const_data_ptr<float>(), codes.mutable_data_ptr<uint8_t>(), x.numel(), cast,
                  kernels::selected_isa(), libtorch::TorchParallel());
  return codes;
}

at::Tensor decode(const formats::Format& format, const at::Tensor& codes) {
  if (!codes.is_cpu()) return codes.view(cast_type(format)).to(at::kFloat);
  at::Tensor values = at::empty_like(codes, codes.options().dtype(at::kFloat));
  kernels::decode(format, codes.const_data_ptr<uint8_t>(), values.mutable_data_ptr<float>(), codes.numel(),
                  kernels::selected_isa(), libtorch::TorchParallel());
  return values;
}

}  // namespace ulp::amp
