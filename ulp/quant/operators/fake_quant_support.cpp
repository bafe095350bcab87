#include "ulp/quant/operators/fake_quant_support.h"

#include <torch/types.h>

#include "ulp/kernels/training/fake_quant.h"
#include "ulp/libtorch/data_types.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::quant {
namespace {

using at::Tensor;

// Dense, and of a type that the kernels read.
Tensor kernel_input(const Tensor& x) {
  const Tensor values = x.scalar_type() == at::kBFloat16 ? x : x.to(at::kFloat);
  return values.is_non_overlapping_and_dense() ? values : values.contiguous();
}

FakeQuantized generic(const Tensor& x, const Params& params, int64_t axis, int64_t qmin, int64_t qmax,
                      bool with_mask) {
  const Tensor scale = along(params.scale, x, axis);
  const Tensor values = centered_generic(x, params, axis, qmin, qmax) * scale;
  FakeQuantized result{values.to(x.scalar_type()), {}};
  if (with_mask) {
    const Tensor codes = at::round(x.to(at::kFloat) * scale.reciprocal()) + along(params.zero_point, x, axis);
    result.inside = at::logical_and(codes >= qmin, codes <= qmax);
  }
  return result;
}

}  // namespace

FakeQuantized fake_quantize_forward(const Tensor& x, const Params& params, int64_t axis, int64_t qmin,
                                    int64_t qmax, bool with_mask) {
  if (!x.is_cpu()) return generic(x, params, axis, qmin, qmax, with_mask);
  const Tensor input = kernel_input(x);
  const int64_t n = input.numel();
  Tensor values = at::empty_like(input);
  Tensor inside;
  if (with_mask) inside = at::empty({kernels::mask_words(n)}, x.options().dtype(at::kLong));
  const Blocks blocks = blocks_of(input, axis);
  const kernels::FakeQuant how{.scale = params.scale.const_data_ptr<float>(),
                               .zero_point = params.zero_point.const_data_ptr<float>(),
                               .channels = blocks.channels,
                               .inner = blocks.inner,
                               .qmin = static_cast<float>(qmin),
                               .qmax = static_cast<float>(qmax)};
  const DataType type = libtorch::data_type_of(input.scalar_type()).value();
  auto* words = with_mask ? reinterpret_cast<uint64_t*>(inside.mutable_data_ptr<int64_t>()) : nullptr;
  kernels::fake_quantize(how, type, input.const_data_ptr(), n, values.mutable_data_ptr(), words,
                         kernels::selected_isa(), libtorch::TorchParallel());
  return {values.to(x.scalar_type()), inside};
}

Tensor fake_quantize_backward(const Tensor& gradient, const Tensor& inside, at::IntArrayRef strides) {
  if (inside.scalar_type() == at::kBool) {
    return at::where(inside, gradient, at::zeros({}, gradient.options()));
  }
  Tensor dense = gradient;
  if (gradient.strides() != strides || !gradient.is_non_overlapping_and_dense()) {
    dense = at::empty_strided(gradient.sizes(), strides, gradient.options()).copy_(gradient);
  }
  Tensor result = at::empty_strided(gradient.sizes(), strides, gradient.options());
  kernels::keep_inside(reinterpret_cast<const uint64_t*>(inside.const_data_ptr<int64_t>()),
                       dense.element_size(), dense.const_data_ptr(), dense.numel(), result.mutable_data_ptr(),
                       kernels::selected_isa(), libtorch::TorchParallel());
  return result;
}

}  // namespace ulp::quant
