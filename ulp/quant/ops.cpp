#include "ulp/quant/ops.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

using at::Tensor;

// How one dense tensor lies in memory, seen from its channel dimension: element (o, c, i) is at
// (o * channels + c) * inner + i, whatever the order of the other dimensions (so channels_last needs no
// copy).
struct Blocks {
  int64_t outer = 1, channels = 1, inner = 1;
};

Blocks blocks_of(const Tensor& dense, int64_t axis) {
  if (axis < 0 || dense.size(axis) == 1) return {1, 1, dense.numel()};
  const int64_t channels = dense.size(axis), inner = dense.stride(axis);
  return {dense.numel() / std::max<int64_t>(channels * inner, 1), channels, inner};
}

struct Params {
  Tensor scale, zero_point;  // f32, contiguous
};

Params check_params(const char* where, const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                    int64_t axis) {
  if (axis < -1 || axis >= x.dim()) {
    fail(where, "expected a channel axis in [-1, ", x.dim() - 1, "], got ", axis);
  }
  const int64_t count = axis < 0 ? 1 : x.size(axis);
  if (scale.numel() != count || zero_point.numel() != count) {
    fail(where, "expected ", count, " scales and zero points for a tensor of shape ", x.sizes(), " and axis ",
         axis, ", got ", scale.numel(), " and ", zero_point.numel());
  }
  return {scale.detach().to(x.device(), at::kFloat).contiguous(),
          zero_point.detach().to(x.device(), at::kFloat).contiguous()};
}

void check_codes(const char* where, int64_t qmin, int64_t qmax, int64_t lowest, int64_t highest) {
  if (qmin > qmax || qmin < lowest || qmax > highest) {
    fail(where, "expected codes in [", lowest, ", ", highest, "], got [", qmin, ", ", qmax, "]");
  }
}

Tensor dense_float(const Tensor& x) {
  const Tensor values = x.to(at::kFloat);
  return values.is_non_overlapping_and_dense() ? values : values.contiguous();
}

Tensor along(const Tensor& params, const Tensor& x, int64_t axis) {
  if (axis < 0) return params.reshape({});
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[static_cast<size_t>(axis)] = -1;
  return params.reshape(shape);
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

constexpr int64_t kGrain = 1 << 15;

// task(codec, begin, end) for every run of memory that shares one scale.
template <typename Task>
void for_each_run(const Tensor& dense, const Params& params, int64_t axis, int64_t qmin, int64_t qmax,
                  Task task) {
  const Blocks blocks = blocks_of(dense, axis);
  const float* scales = params.scale.const_data_ptr<float>();
  const float* zeros = params.zero_point.const_data_ptr<float>();
  if (blocks.channels == 1) {
    const Codec codec(scales[0], zeros[0], qmin, qmax);
    at::parallel_for(0, blocks.inner, kGrain, [&](int64_t begin, int64_t end) { task(codec, begin, end); });
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(blocks.inner, 1));
  at::parallel_for(0, blocks.outer * blocks.channels, grain, [&](int64_t begin, int64_t end) {
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

// The same arithmetic for devices without a kernel of ours.
Tensor centered_generic(const Tensor& x, const Params& params, int64_t axis, int64_t qmin, int64_t qmax) {
  const Tensor zero = along(params.zero_point, x, axis);
  const Tensor scaled = x.to(at::kFloat) * along(params.scale, x, axis).reciprocal();
  const Tensor clamped = at::minimum(at::maximum(scaled, qmin - zero), qmax - zero);
  return at::round(at::where(at::isnan(scaled), qmin - zero, clamped));
}

Tensor quantize_kernel(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                       int64_t qmin, int64_t qmax, at::ScalarType dtype) {
  constexpr const char* kWhere = "quant.quantize";
  if (!x.is_floating_point()) fail(kWhere, "expected a floating-point tensor, got ", x.scalar_type());
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

struct FakeQuantized {
  Tensor values;
  Tensor inside;  // bool: where the gradient passes; undefined unless asked for
};

FakeQuantized fake_quantize_dense(const Tensor& x, const Params& params, int64_t axis, int64_t qmin,
                                  int64_t qmax, bool with_mask) {
  FakeQuantized result{at::empty_like(x),
                       with_mask ? at::empty_like(x, x.options().dtype(at::kBool)) : Tensor()};
  const float* in = x.const_data_ptr<float>();
  float* out = result.values.mutable_data_ptr<float>();
  bool* inside = with_mask ? result.inside.mutable_data_ptr<bool>() : nullptr;
  for_each_run(x, params, axis, qmin, qmax, [=](const Codec& codec, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = codec.centered(in[i]) * codec.scale;
    if (inside == nullptr) return;
    // Rounding moves a value at most half a step, so "inside after rounding" needs the rounded value; beyond
    // one step outside no rounding brings it back, and there round_small would be out of its range.
    for (int64_t i = begin; i < end; ++i) {
      const float v = std::min(std::max(in[i] * codec.inverse, codec.low - 1), codec.high + 1);
      const float r = round_small(v);
      inside[i] = r >= codec.low && r <= codec.high && in[i] == in[i];
    }
  });
  return result;
}

FakeQuantized fake_quantize_checked(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                                    int64_t axis, int64_t qmin, int64_t qmax, bool with_mask) {
  constexpr const char* kWhere = "quant.fake_quantize";
  if (!x.is_floating_point()) fail(kWhere, "expected a floating-point tensor, got ", x.scalar_type());
  check_codes(kWhere, qmin, qmax, -32768, 65535);
  const Params params = check_params(kWhere, x, scale, zero_point, axis);
  if (x.is_cpu()) return fake_quantize_dense(dense_float(x), params, axis, qmin, qmax, with_mask);
  const Tensor zero = along(params.zero_point, x, axis);
  FakeQuantized result{centered_generic(x, params, axis, qmin, qmax) * along(params.scale, x, axis), {}};
  if (with_mask) {
    const Tensor codes = at::round(x.to(at::kFloat) * along(params.scale, x, axis).reciprocal()) + zero;
    result.inside = at::logical_and(codes >= qmin, codes <= qmax);
  }
  return result;
}

Tensor fake_quantize_kernel(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                            int64_t qmin, int64_t qmax) {
  return fake_quantize_checked(x, scale, zero_point, axis, qmin, qmax, false).values.to(x.scalar_type());
}

struct FakeQuantizeFunction : public torch::autograd::Function<FakeQuantizeFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& scale,
                        const Tensor& zero_point, int64_t axis, int64_t qmin, int64_t qmax) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto result = fake_quantize_checked(x, scale, zero_point, axis, qmin, qmax, true);
    context->save_for_backward({result.inside});
    return result.values.to(x.scalar_type());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const Tensor inside = context->get_saved_variables()[0];
    // where, not a product: a gradient that is inf outside the range must not become NaN.
    return {at::where(inside, grads[0], at::zeros({}, grads[0].options())), {}, {}, {}, {}, {}};
  }
};

Tensor fake_quantize_autograd(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                              int64_t qmin, int64_t qmax) {
  if (at::GradMode::is_enabled() && x.requires_grad()) {
    return FakeQuantizeFunction::apply(x, scale, zero_point, axis, qmin, qmax);
  }
  at::AutoDispatchBelowADInplaceOrView below;
  return fake_quantize(x, scale, zero_point, axis, qmin, qmax);
}

template <typename Signature>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def(
      "quantize(Tensor x, Tensor scale, Tensor zero_point, int axis, int qmin, int qmax, ScalarType dtype) "
      "-> Tensor");
  m.def("dequantize(Tensor q, Tensor scale, Tensor zero_point, int axis) -> Tensor");
  m.def("fake_quantize(Tensor x, Tensor scale, Tensor zero_point, int axis, int qmin, int qmax) -> Tensor");
}

TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("quantize", quantize_kernel);
  m.impl("dequantize", dequantize_kernel);
  m.impl("fake_quantize", fake_quantize_kernel);
}

TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("quantize", torch::CppFunction::makeFallthrough());
  m.impl("dequantize", torch::CppFunction::makeFallthrough());
  m.impl("fake_quantize", fake_quantize_autograd);
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

Tensor fake_quantize(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                     int64_t qmin, int64_t qmax) {
  static const auto op = find_operator<decltype(fake_quantize_kernel)>("ulp::fake_quantize");
  return op.call(x, scale, zero_point, axis, qmin, qmax);
}

}  // namespace ulp::quant
