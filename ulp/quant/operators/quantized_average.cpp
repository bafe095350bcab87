// ulp::average_codes: the kernels of the engine, so that a graph and its engine have one rule for ties.
// "half_even" counts from the zero point; "half_away" does from code 0 of s8 codes that keep their scale, as
// LiteRT does.
#include <torch/library.h>
#include <torch/types.h>

#include <array>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/kernels/image/pool.h"
#include "ulp/libtorch/torch_parallel.h"
#include "ulp/quant/static/op_support.h"

namespace ulp::quant {
namespace {

using at::Tensor;

constexpr const char* kAverageCodesWhere = "quant.average_codes";

/// s8 codes are u8 codes moved by 128, with the zero point.
constexpr int32_t kShift = 128;

kernels::Affine affine_of(const Tensor& q, const Tensor& scale, const Tensor& zero_point) {
  const Params params = check_params(kAverageCodesWhere, q, scale, zero_point, -1);
  const int32_t shift = q.scalar_type() == at::kChar ? kShift : 0;
  return {params.scale.item<float>(), static_cast<int32_t>(params.zero_point.item<float>()) + shift};
}

/// The two numbers of an image; of a sequence, whose height is 1, `height` and its own.
std::array<int64_t, 2> pair_of(const char* name, at::IntArrayRef values, int64_t dims, int64_t height) {
  if (static_cast<int64_t>(values.size()) != dims) {
    fail(kAverageCodesWhere, "expected ", dims, " numbers in '", name, "', got ", values.size());
  }
  return {dims == 1 ? height : values[0], values.back()};
}

kernels::PoolShape shape_of(const Tensor& image, int64_t dims, at::IntArrayRef kernel_size,
                            at::IntArrayRef strides, at::IntArrayRef paddings, bool ceil_mode) {
  kernels::PoolShape shape;
  shape.in_h = shape.kernel_h = image.size(2);
  shape.in_w = shape.kernel_w = image.size(3);
  shape.channels = image.size(1);
  shape.ceil_mode = ceil_mode;
  if (!kernel_size.empty()) {
    const auto kernel = pair_of("kernel_size", kernel_size, dims, 1),
               stride = pair_of("stride", strides, dims, 1), padding = pair_of("padding", paddings, dims, 0);
    shape.kernel_h = kernel[0];
    shape.kernel_w = kernel[1];
    shape.stride_h = stride[0];
    shape.stride_w = stride[1];
    shape.pad_h = padding[0];
    shape.pad_w = padding[1];
  }
  kernels::check_pool(shape);
  return shape;
}

/// Channels innermost, as the kernels read them.
Tensor pool(const Tensor& codes, const kernels::PoolShape& shape, bool count_include_pad,
            const kernels::Affine& from, const kernels::Affine& to, bool half_away) {
  const Tensor x = codes.permute({0, 2, 3, 1}).contiguous();
  Tensor y = at::empty({x.size(0), shape.out_h(), shape.out_w(), shape.channels}, x.options());
  const auto* in = x.const_data_ptr<uint8_t>();
  auto* out = y.mutable_data_ptr<uint8_t>();
  const kernels::Isa isa = kernels::selected_isa();
  if (half_away) {
    kernels::avg_pool_u8(shape, count_include_pad, x.size(0), in, out, from.zero_point, isa,
                         libtorch::TorchParallel());
  } else {
    kernels::avg_pool(DataType::u8, shape, count_include_pad, x.size(0), in, out, from, to, isa,
                      libtorch::TorchParallel());
  }
  return y.permute({0, 3, 1, 2});
}

/// Whether the rounding is "half_away"; that needs s8 codes of one scale.
bool is_half_away(std::string_view rounding, bool is_signed, const kernels::Affine& from,
                  const kernels::Affine& to) {
  if (rounding == "half_even") return false;
  if (rounding != "half_away")
    fail(kAverageCodesWhere, "expected rounding 'half_even' or 'half_away', got '", rounding, "'");
  if (!is_signed || from.scale != to.scale || from.zero_point != to.zero_point)
    fail(kAverageCodesWhere,
         "expected codes of dtype Char that keep their scale for rounding 'half_away', got others");
  return true;
}

Tensor average_codes_kernel(const Tensor& q, const Tensor& scale, const Tensor& zero_point,
                            const Tensor& result_scale, const Tensor& result_zero_point,
                            at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding,
                            bool ceil_mode, bool count_include_pad, c10::string_view rounding) {
  const bool is_signed = q.scalar_type() == at::kChar;
  const int64_t dims = q.dim() - 2;
  if ((dims != 1 && dims != 2) || q.numel() == 0 || (!is_signed && q.scalar_type() != at::kByte)) {
    fail(kAverageCodesWhere, "expected codes [N, C, H, W] or [N, C, L] of dtype Byte or Char, got ",
         q.scalar_type(), " ", q.sizes());
  }
  const kernels::Affine from = affine_of(q, scale, zero_point);
  const kernels::Affine to = affine_of(q, result_scale, result_zero_point);
  const Tensor image = (dims == 1 ? q.unsqueeze(2) : q).to(at::kCPU);
  const kernels::PoolShape shape = shape_of(image, dims, kernel_size, stride, padding, ceil_mode);
  Tensor y = pool(is_signed ? image.to(at::kShort).add(kShift).to(at::kByte) : image, shape,
                  count_include_pad, from, to, is_half_away(rounding, is_signed, from, to));
  if (is_signed) y = y.to(at::kShort).sub(kShift).to(at::kChar);
  if (dims == 1) y = y.squeeze(2);
  return y.contiguous(q.suggest_memory_format()).to(q.device());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def(
      "average_codes(Tensor q, Tensor scale, Tensor zero_point, Tensor result_scale, Tensor "
      "result_zero_point, "
      "int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, bool count_include_pad, "
      "str rounding=\"half_even\") -> Tensor");
}

TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("average_codes", average_codes_kernel);
}

TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("average_codes", torch::CppFunction::makeFallthrough());
}

}  // namespace ulp::quant
