#include "ulp/amp/fp8/fp8_tensor.h"

#include <torch/types.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "ulp/amp/fp8/fp8_casts.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

constexpr const char* kQuantizeFp8Where = "amp.quantize_fp8";
constexpr int kMantissaBits = 23;
constexpr int kExponentMask = 0x7F800000;
constexpr int kMantissaMask = 0x007FFFFF;
constexpr int kMxBlock = 32, kNvBlock = 16, kBlock = 128;
constexpr double kRowwiseSmallest = 1e-12;  // of torchao, whose scales are to be met

/// A matrix whose blocks are whole ones: zeros are added at the end of rows and columns.
struct Blocked {
  at::Tensor padded;  ///< [block rows, rows, block columns, columns]
  int64_t rows, columns;
  Fp8Block size;

  Blocked(const at::Tensor& matrix, Fp8Block block)
      : rows(matrix.size(0)),
        columns(matrix.size(1)),
        size{block.rows > 0 ? block.rows : std::max<int64_t>(rows, 1),
             block.columns > 0 ? block.columns : std::max<int64_t>(columns, 1)} {
    const int64_t more_rows = (size.rows - rows % size.rows) % size.rows;
    const int64_t more_columns = (size.columns - columns % size.columns) % size.columns;
    at::Tensor whole = matrix.contiguous();
    if (more_rows + more_columns > 0) whole = at::constant_pad_nd(whole, {0, more_columns, 0, more_rows});
    padded = whole.view({-1, size.rows, whole.size(1) / size.columns, size.columns});
  }
  /// Of one number for each block: what broadcasts with `padded`.
  static at::Tensor spread(const at::Tensor& of_blocks) { return of_blocks.unsqueeze(1).unsqueeze(-1); }
  /// The matrix without what was added.
  at::Tensor matrix(const at::Tensor& like_padded) const {
    return like_padded.reshape({padded.size(0) * size.rows, padded.size(2) * size.columns})
        .narrow(0, 0, rows)
        .narrow(1, 0, columns)
        .contiguous();
  }
};

at::Tensor as_matrix(const at::Tensor& x) {
  return x.dim() == 0 ? x.reshape({1, 1}) : x.reshape({-1, x.size(-1)});
}

at::Tensor below_power_of_2(const at::Tensor& scale) {
  return scale.view(at::kInt).bitwise_and(kExponentMask).view(at::kFloat);
}

at::Tensor ones_where_not(const at::Tensor& usable, const at::Tensor& scale) {
  return at::where(usable, scale, at::ones({}, scale.options()));
}

/// Codes of e8m0, which are the exponents of floats.
at::Tensor mx_scale_codes(const at::Tensor& amax, MxRounding rounding, const formats::Format& format) {
  at::Tensor exponent;
  if (rounding == MxRounding::floor) {
    const at::Tensor field = amax.view(at::kInt).bitwise_right_shift(kMantissaBits);
    exponent = (field - std::ilogb(format.max())).clamp_min(0);
  } else {
    const at::Tensor bits = (amax / format.max()).view(at::kInt);
    const at::Tensor field = bits.bitwise_right_shift(kMantissaBits), rest = bits.bitwise_and(kMantissaMask);
    // Below 2^-127 the smallest scale is enough.
    const at::Tensor above = at::where(field == 0, rest > (1 << (kMantissaBits - 1)), rest > 0);
    exponent = field + above.to(at::kInt);
  }
  constexpr int kNan = 0xFF;
  return exponent.masked_fill(amax.isfinite().logical_not(), kNan).to(at::kByte);
}

at::Tensor mx_scales(const at::Tensor& codes) {
  constexpr int kNan = 0xFF, kSmallest = 1 << (kMantissaBits - 1);  // 2^-127 is no normal number
  const at::Tensor bits = codes.to(at::kInt).bitwise_left_shift(kMantissaBits);
  const at::Tensor scales = bits.masked_fill(codes == 0, kSmallest).view(at::kFloat);
  return scales.masked_fill(codes == kNan, std::numeric_limits<float>::quiet_NaN());
}

/// The scale of an nvfp4 tensor: of what is finite in it, as formats::tensor_scale().
at::Tensor nv_tensor_scale(const at::Tensor& block_amax, const formats::Format& format) {
  const double range = formats::find("fp8_e4m3fn").max() * format.max();
  const at::Tensor finite = block_amax.masked_fill(block_amax.isfinite().logical_not(), 0);
  const at::Tensor amax = finite.numel() > 0 ? finite.amax() : finite.sum();
  const at::Tensor scale = (amax / range).clamp_min(std::numeric_limits<float>::min());
  return ones_where_not(amax > 0, scale);
}

void set_scales(Fp8Tensor& out, const at::Tensor& amax, const Fp8LayerRecipe& recipe) {
  const formats::Format& format = *out.format;
  switch (recipe.scaling) {
    case Fp8Scaling::mxfp8:
      out.scale_codes = mx_scale_codes(amax, recipe.mx_rounding, format);
      out.scale_inv = mx_scales(out.scale_codes);
      return;
    case Fp8Scaling::nvfp4: {
      const formats::Format& scale_format = formats::find("fp8_e4m3fn");
      out.tensor_scale = nv_tensor_scale(amax, format);
      const at::Tensor wanted = (amax / format.max() / out.tensor_scale).masked_fill(amax.isinf(), NAN);
      out.scale_codes = encode(scale_format, wanted.contiguous()).clamp_min(1);
      out.scale_inv = decode(scale_format, out.scale_codes) * out.tensor_scale;
      return;
    }
    case Fp8Scaling::rowwise: {
      const at::Tensor scale =
          (format.max() / amax.to(at::kDouble).clamp_min(kRowwiseSmallest)).to(at::kFloat);
      out.scale_inv = ones_where_not(amax.isfinite(), below_power_of_2(scale)).reciprocal();
      return;
    }
    default:
      out.scale_inv = current_scale(amax, format, /*power_of_2=*/true).reciprocal();
  }
}

}  // namespace

const formats::Format& fp8_format(const Fp8LayerRecipe& recipe, Fp8Role role) {
  if (recipe.scaling == Fp8Scaling::nvfp4) return formats::find("fp4_e2m1");
  const bool whole = recipe.scaling == Fp8Scaling::delayed || recipe.scaling == Fp8Scaling::current;
  const bool wide = whole && recipe.format == Fp8Format::hybrid && role == Fp8Role::gradient;
  return formats::find(wide ? "fp8_e5m2" : "fp8_e4m3fn");
}

Fp8Block fp8_block(const Fp8LayerRecipe& recipe, Fp8Role role) {
  const bool weight = role == Fp8Role::weight;
  switch (recipe.scaling) {
    case Fp8Scaling::rowwise:
      return {1, 0};
    case Fp8Scaling::block:
      return {weight ? kBlock : 1, kBlock};
    case Fp8Scaling::mxfp8:
      return {1, kMxBlock};
    case Fp8Scaling::nvfp4:
      return {weight ? kNvBlock : 1, kNvBlock};
    default:
      return {};
  }
}

at::Tensor Fp8Tensor::values() const {
  return decode(*format, codes);
}

at::Tensor Fp8Tensor::dequantized() const {
  at::Tensor numbers = values();
  if (scale_inv.dim() == 0) return numbers.mul_(scale_inv);
  const Blocked blocked(as_matrix(numbers), block);
  return blocked.matrix(blocked.padded * Blocked::spread(scale_inv)).view(codes.sizes());
}

Fp8Tensor Fp8Tensor::transposed() const {
  if (codes.dim() != 2 || (scale_inv.dim() != 0 && block.rows != block.columns))
    fail("amp.Fp8Tensor.transposed", "expected a matrix with one scale or square blocks, got blocks of ",
         block.rows, 'x', block.columns, " of ", codes.sizes());
  Fp8Tensor out = *this;  // its codes keep their memory
  out.codes = codes.t();
  if (scale_inv.dim() == 2) out.scale_inv = scale_inv.t().contiguous();
  if (scale_codes.defined()) out.scale_codes = scale_codes.t().contiguous();
  return out;
}

at::Tensor amax_of(const at::Tensor& x) {
  if (x.numel() == 0) return at::zeros({}, x.options().dtype(at::kFloat));
  const auto [low, high] = at::aminmax(x.detach());
  return at::maximum(low.neg(), high).to(at::kFloat);
}

at::Tensor current_scale(const at::Tensor& amax, const formats::Format& format, bool power_of_2) {
  at::Tensor scale = (format.max() / amax).clamp_max(std::numeric_limits<float>::max());
  if (power_of_2) scale = below_power_of_2(scale);
  return ones_where_not(at::logical_and(amax > 0, amax.isfinite()), scale);
}

Fp8Tensor quantize_whole(const at::Tensor& x, const formats::Format& format, const at::Tensor& scale) {
  return {.format = &format,
          .codes = encode_scaled(format, dense_float(x), scale),
          .scale_inv = scale.reciprocal()};
}

Fp8Tensor quantize_fp8(const at::Tensor& x, const Fp8LayerRecipe& recipe, Fp8Role role,
                       std::optional<formats::RandomKey> random) {
  if (recipe.scaling == Fp8Scaling::delayed)
    fail(kQuantizeFp8Where, "expected a recipe whose scales come from the tensor itself, got delayed");
  const formats::Format& format = fp8_format(recipe, role);
  const Fp8Block size = fp8_block(recipe, role);
  if (size.rows == 0) return quantize_whole(x, format, current_scale(amax_of(x), format, recipe.power_of_2));
  const Blocked blocked(as_matrix(x.detach().to(at::kFloat)), size);
  Fp8Tensor out{.format = &format, .codes = {}, .scale_inv = {}, .block = size};
  const at::Tensor amax = blocked.padded.numel() > 0
                              ? blocked.padded.abs().amax({1, 3})
                              : at::zeros({blocked.padded.size(0), 0}, blocked.padded.options());
  set_scales(out, amax, recipe);
  const at::Tensor scaled = blocked.padded / Blocked::spread(out.scale_inv);
  out.codes = encode(format, blocked.matrix(scaled), random).view(x.sizes());
  return out;
}

at::Tensor hadamard_16(const at::Tensor& x) {
  at::Tensor matrix = at::ones({1, 1}, x.options().dtype(at::kFloat));
  while (matrix.size(0) < kNvBlock) {
    const at::Tensor row = at::cat({matrix, matrix}, 1);
    matrix = at::cat({row, at::cat({matrix, matrix.neg()}, 1)}, 0);
  }
  const int64_t more = (kNvBlock - x.size(-1) % kNvBlock) % kNvBlock;
  const at::Tensor padded = at::constant_pad_nd(x.to(at::kFloat), {0, more});
  return at::matmul(padded.reshape({-1, kNvBlock}), matrix / std::sqrt(kNvBlock)).view(padded.sizes());
}

}  // namespace ulp::amp
