// ulp::fake_quantize_learned: fake quantization whose scale and zero point are trained (LSQ and LSQ+).
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/libtorch/torch_parallel.h"
#include "ulp/quant/operators/fake_quant_support.h"
#include "ulp/quant/operators/ops.h"

namespace ulp::quant {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CodeRange {
  int64_t axis, qmin, qmax;
};

// The parameters that the codes are computed with: the zero point is a whole code.
Params rounded_params(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                      const CodeRange& range) {
  constexpr const char* kWhere = "quant.fake_quantize_learned";
  check_floating(kWhere, x);
  check_codes(kWhere, range.qmin, range.qmax, kLowestCode, kHighestCode);
  Params params = check_params(kWhere, x, scale, zero_point, range.axis);
  params.zero_point = params.zero_point.round().clamp(range.qmin, range.qmax);
  return params;
}

struct Sums {
  double scale = 0, zero_point = 0;
};

// One stretch of memory with one scale. What is far outside is cut off before rounding as in the kernel.
Sums sum_run(const float* x, const float* g, float* dx, int64_t n, float s, float low, float high) {
  const float inverse = 1.0F / s;
  Sums sums;
  for (int64_t i = 0; i < n; ++i) {
    const float t = x[i] * inverse;
    const float r = std::nearbyint(t > low - 1 ? (t < high + 1 ? t : high + 1) : low - 1);
    if (r >= low && r <= high) {
      dx[i] = g[i];
      sums.scale += static_cast<double>(g[i]) * (r - t);
    } else {
      dx[i] = 0;
      sums.scale += static_cast<double>(g[i]) * (r < low ? low : high);
      sums.zero_point -= static_cast<double>(g[i]) * s;
    }
  }
  return sums;
}

struct Gradients {
  Tensor x, scale, zero_point;
};

// Sums are taken run by run and added in order, so they do not depend on the number of threads.
Gradients gradients(const Tensor& x, const Tensor& gradient, const Params& params, const CodeRange& range,
                    double factor) {
  constexpr int64_t kPiece = 1 << 14;
  const Blocks blocks = blocks_of(x, range.axis);
  const int64_t length = blocks.channels == 1 ? kPiece : std::max<int64_t>(blocks.inner, 1);
  const int64_t runs = (x.numel() + length - 1) / length;
  std::vector<Sums> sums(static_cast<size_t>(runs));
  Gradients result{at::empty_like(x), at::zeros(params.scale.sizes(), at::kDouble),
                   at::zeros(params.scale.sizes(), at::kDouble)};
  const float *values = x.const_data_ptr<float>(), *g = gradient.const_data_ptr<float>(),
              *scales = params.scale.const_data_ptr<float>(),
              *zeros = params.zero_point.const_data_ptr<float>();
  float* dx = result.x.mutable_data_ptr<float>();
  libtorch::parallel_for(0, runs, std::max<int64_t>(1, kPiece / length), [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      const int64_t c = run % blocks.channels, at = run * length;
      sums[static_cast<size_t>(run)] =
          sum_run(values + at, g + at, dx + at, std::min(length, x.numel() - at), scales[c],
                  static_cast<float>(range.qmin) - zeros[c], static_cast<float>(range.qmax) - zeros[c]);
    }
  });
  double* ds = result.scale.mutable_data_ptr<double>();
  double* dz = result.zero_point.mutable_data_ptr<double>();
  for (int64_t run = 0; run < runs; ++run) {
    ds[run % blocks.channels] += sums[static_cast<size_t>(run)].scale * factor;
    dz[run % blocks.channels] += sums[static_cast<size_t>(run)].zero_point * factor;
  }
  return result;
}

Tensor learned_kernel(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                      int64_t qmin, int64_t qmax, double) {
  const CodeRange range{axis, qmin, qmax};
  return fake_quantize_forward(x, rounded_params(x, scale, zero_point, range), axis, qmin, qmax, false)
      .values;
}

struct LearnedFunction : public torch::autograd::Function<LearnedFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& scale,
                        const Tensor& zero_point, int64_t axis, int64_t qmin, int64_t qmax, double factor) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, scale, zero_point});
    context->saved_data["range"] = std::vector<int64_t>{axis, qmin, qmax};
    context->saved_data["factor"] = factor;
    return learned_kernel(x, scale, zero_point, axis, qmin, qmax, factor);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &scale = saved[1], &zero_point = saved[2];
    const std::vector<int64_t> codes = context->saved_data["range"].toIntVector();
    const CodeRange range{codes[0], codes[1], codes[2]};
    const Params params = rounded_params(x, scale, zero_point, range);
    const Tensor values = x.detach().to(at::kCPU, at::kFloat);
    const Tensor dense = values.is_non_overlapping_and_dense() ? values : values.contiguous();
    const Tensor gradient =
        at::empty_strided(dense.sizes(), dense.strides(), dense.options()).copy_(grads[0]);
    const Gradients result = gradients(dense, gradient, {params.scale.cpu(), params.zero_point.cpu()}, range,
                                       context->saved_data["factor"].toDouble());
    return {result.x.to(x.options()),
            result.scale.to(scale.options()).reshape(scale.sizes()),
            zero_point.is_floating_point()
                ? result.zero_point.to(zero_point.options()).reshape(zero_point.sizes())
                : Tensor(),
            {},
            {},
            {},
            {}};
  }
};

Tensor learned_autograd(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                        int64_t qmin, int64_t qmax, double factor) {
  if (at::GradMode::is_enabled() &&
      (x.requires_grad() || scale.requires_grad() || zero_point.requires_grad())) {
    return LearnedFunction::apply(x, scale, zero_point, axis, qmin, qmax, factor);
  }
  at::AutoDispatchBelowADInplaceOrView below;
  return fake_quantize_learned(x, scale, zero_point, axis, qmin, qmax, factor);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def(
      "fake_quantize_learned(Tensor x, Tensor scale, Tensor zero_point, int axis, int qmin, int qmax, float "
      "gradient_factor) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("fake_quantize_learned", learned_kernel);
}
TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("fake_quantize_learned", learned_autograd);
}

Tensor fake_quantize_learned(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                             int64_t qmin, int64_t qmax, double gradient_factor) {
  static const auto op = find_operator<decltype(learned_kernel)>("ulp::fake_quantize_learned");
  return op.call(x, scale, zero_point, axis, qmin, qmax, gradient_factor);
}

}  // namespace ulp::quant
