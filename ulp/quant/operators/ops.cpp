#include "ulp/quant/operators/ops.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/libtorch/torch_parallel.h"
#include "ulp/quant/static/op_support.h"

namespace ulp::quant {
namespace {

using at::Tensor;

Tensor dense_float(const Tensor& x) {
  const Tensor values = x.to(at::kFloat);
  return values.is_non_overlapping_and_dense() ? values : values.contiguous();
}

// round(v) for |v| < 2^22, half to even, in two additions that every compiler vectorizes.
inline float round_small(float v) {
  constexpr float kMagic = 0x1.8p23F;
  return (v + kMagic) - kMagic;
}

// Bounds around zero before rounding: they are whole numbers, so clamping first changes nothing and keeps the
// sum small enough for round_small. The comparisons are written so that NaN becomes the lower bound.
struct Codec {
  float inverse, scale, zero, low, high;
  Codec(float s, float z, int64_t qmin, int64_t qmax)
      : inverse(1.0F / s),
        scale(s),
        zero(z),
        low(static_cast<float>(qmin) - z),
        high(static_cast<float>(qmax) - z) {}
  float centered(float x) const {
    float v = x * inverse;
    v = v > low ? v : low;
    return round_small(v < high ? v : high);
  }
};

constexpr int64_t kQuantizeGrain = 1 << 15;

// task(codec, begin, end) for every run of memory that shares one scale.
template <typename Task>
void for_each_run(const Tensor& dense, const Params& params, int64_t axis, int64_t qmin, int64_t qmax,
                  Task task) {
  const Blocks blocks = blocks_of(dense, axis);
  const float* scales = params.scale.const_data_ptr<float>();
  const float* zeros = params.zero_point.const_data_ptr<float>();
  if (blocks.channels == 1) {
    const Codec codec(scales[0], zeros[0], qmin, qmax);
    libtorch::parallel_for(0, blocks.inner, kQuantizeGrain,
                           [&](int64_t begin, int64_t end) { task(codec, begin, end); });
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kQuantizeGrain / std::max<int64_t>(blocks.inner, 1));
  libtorch::parallel_for(0, blocks.outer * blocks.channels, grain, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      const int64_t c = run % blocks.channels;
      task(Codec(scales[c], zeros[c], qmin, qmax), run * blocks.inner, (run + 1) * blocks.inner);
    }
  });
}

template <typename Code>
void quantize_dense(const Tensor& x, const Params& params, int64_t axis, int64_t qmin, int64_t qmax,
                    Tensor& q) {
  const float* in = x.const_data_ptr<float>();
  Code* out = q.mutable_data_ptr<Code>();
  for_each_run(x, params, axis, qmin, qmax, [=](const Codec& codec, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      out[i] = static_cast<Code>(static_cast<int32_t>(codec.centered(in[i]) + codec.zero));
    }
  });
}

template <typename Code>
void dequantize_dense(const Tensor& q, const Params& params, int64_t axis, Tensor& x) {
  const Code* in = q.const_data_ptr<Code>();
  float* out = x.mutable_data_ptr<float>();
  for_each_run(q, params, axis, 0, 0, [=](const Codec& codec, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = (static_cast<float>(in[i]) - codec.zero) * codec.scale;
  });
}

Tensor quantize_kernel(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                       int64_t qmin, int64_t qmax, at::ScalarType dtype) {
  constexpr const char* kWhere = "quant.quantize";
  check_floating(kWhere, x);
  if (dtype != at::kByte && dtype != at::kChar)
    fail(kWhere, "expected codes of dtype Byte or Char, got ", dtype);
  const bool is_signed = dtype == at::kChar;
  check_codes(kWhere, qmin, qmax, is_signed ? -128 : 0, is_signed ? 127 : 255);
  const Params params = check_params(kWhere, x, scale, zero_point, axis);
  if (!x.is_cpu()) {
    return (centered_generic(x, params, axis, qmin, qmax) + along(params.zero_point, x, axis)).to(dtype);
  }
  const Tensor dense = dense_float(x);
  Tensor q = at::empty_like(dense, dense.options().dtype(dtype));
  is_signed ? quantize_dense<int8_t>(dense, params, axis, qmin, qmax, q)
            : quantize_dense<uint8_t>(dense, params, axis, qmin, qmax, q);
  return q;
}

Tensor dequantize_kernel(const Tensor& q, const Tensor& scale, const Tensor& zero_point, int64_t axis) {
  constexpr const char* kWhere = "quant.dequantize";
  const auto type = q.scalar_type();
  if (type != at::kByte && type != at::kChar && type != at::kInt) {
    fail(kWhere, "expected codes of dtype Byte, Char or Int, got ", type);
  }
  const Params params = check_params(kWhere, q, scale, zero_point, axis);
  if (!q.is_cpu()) {
    return (q.to(at::kFloat) - along(params.zero_point, q, axis)) * along(params.scale, q, axis);
  }
  const Tensor dense = q.is_non_overlapping_and_dense() ? q : q.contiguous();
  Tensor x = at::empty_like(dense, dense.options().dtype(at::kFloat));
  if (type == at::kByte) dequantize_dense<uint8_t>(dense, params, axis, x);
  if (type == at::kChar) dequantize_dense<int8_t>(dense, params, axis, x);
  if (type == at::kInt) dequantize_dense<int32_t>(dense, params, axis, x);
  return x;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def(
      "quantize(Tensor x, Tensor scale, Tensor zero_point, int axis, int qmin, int qmax, ScalarType dtype) "
      "-> Tensor");
  m.def("dequantize(Tensor q, Tensor scale, Tensor zero_point, int axis) -> Tensor");
}

TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("quantize", quantize_kernel);
  m.impl("dequantize", dequantize_kernel);
}

TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("quantize", torch::CppFunction::makeFallthrough());
  m.impl("dequantize", torch::CppFunction::makeFallthrough());
}

Tensor quantize(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis, int64_t qmin,
                int64_t qmax, at::ScalarType dtype) {
  static const auto op = find_operator<decltype(quantize_kernel)>("ulp::quantize");
  return op.call(x, scale, zero_point, axis, qmin, qmax, dtype);
}

Tensor dequantize(const Tensor& q, const Tensor& scale, const Tensor& zero_point, int64_t axis) {
  static const auto op = find_operator<decltype(dequantize_kernel)>("ulp::dequantize");
  return op.call(q, scale, zero_point, axis);
}

}  // namespace ulp::quant
