#include "ulp/kernels/conv/conv.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "ulp/base/error.h"
#include "ulp/kernels/common/clamp.h"
#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

constexpr const char* kWhere = "kernels.make_conv";

void check_range(const char* what, int64_t value, int64_t low) {
  constexpr int64_t kLargest = int64_t{1} << 28;  // keeps every product of three sizes inside int64
  if (value < low || value > kLargest) {
    fail(kWhere, "expected ", what, " in [", low, ", ", kLargest, "], got ", value);
  }
}

void check_product(const char* what, std::initializer_list<int64_t> factors) {
  constexpr int64_t kLargest = int64_t{1} << 40;
  int64_t product = 1;
  for (int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product) || product > kLargest) {
      fail(kWhere, "expected at most 2^40 ", what);
    }
  }
}

void check_affine(const char* what, const Affine& q) {
  if (!std::isfinite(q.scale) || q.scale <= 0)
    fail(kWhere, "expected a positive ", what, " scale, got ", q.scale);
  if (q.zero_point < 0 || q.zero_point > 255) {
    fail(kWhere, "expected a ", what, " zero point in [0, 255], got ", q.zero_point);
  }
}

void check_types(const ConvConfig& c, const ConvWeights& w) {
  const bool integer = c.input == DataType::u8;
  const bool accepted =
      (c.input == DataType::f32 && (c.output == DataType::f32 || c.output == DataType::bf16)) ||
      (c.input == DataType::bf16 && (c.output == DataType::bf16 || c.output == DataType::f32)) ||
      (integer && (c.output == DataType::u8 || c.output == DataType::f32));
  if (!accepted) {
    fail(kWhere, "expected element types f32 or bf16 -> bf16 or f32, or u8 -> u8 or f32; got ",
         to_string(c.input), " -> ", to_string(c.output));
  }
  if (c.residual && c.residual_type != DataType::f32 && c.residual_type != DataType::bf16 &&
      c.residual_type != DataType::u8) {
    fail(kWhere, "expected a residual of f32, bf16 or u8, got ", to_string(c.residual_type));
  }
  if (integer && (w.i8 == nullptr || w.scale == nullptr))
    fail(kWhere, "expected i8 weights and their scales");
  const bool has_floats = w.f32 != nullptr || (c.input == DataType::bf16 && w.bf16 != nullptr);
  if (!integer && !has_floats) fail(kWhere, "expected f32 weights, or bf16 ones for a bf16 layer");
  if (integer) check_affine("input", c.input_q);
  if (c.output == DataType::u8) check_affine("output", c.output_q);
  if (c.residual && c.residual_type == DataType::u8) check_affine("residual", c.residual_q);
}

void set_multiplier(const ConvConfig& config, const ConvWeights& weights, FinishData* out) {
  for (int64_t c = 0; c < config.shape.out_channels; ++c) {
    float m = config.input_q.scale * weights.scale[c];
    // A curve wants numbers; their codes come after it.
    if (config.output == DataType::u8 && !is_smooth_activation(config.activation)) m /= config.output_q.scale;
    if (!std::isfinite(m))
      fail(kWhere, "expected finite scales, got a multiplier of ", m, " for channel ", c);
    out->multiplier.as<float>()[c] = m;
  }
}

void fold_input_zero_point(const ConvConfig& config, const ConvWeights& weights, int32_t offset,
                           int32_t* bias) {
  const ConvShape& s = config.shape;
  const int64_t k = s.in_channels / s.groups * s.kernel_h * s.kernel_w;
  for (int64_t c = 0; c < s.out_channels; ++c) {
    uint32_t sum = 0;  // wraps like the accumulators do
    for (int64_t i = 0; i < k; ++i) sum += static_cast<uint32_t>(int32_t{weights.i8[c * k + i]});
    bias[c] = static_cast<int32_t>(static_cast<uint32_t>(bias[c]) -
                                   static_cast<uint32_t>(config.input_q.zero_point - offset) * sum);
  }
}

using MakeConv = std::unique_ptr<Conv> (*)(const ConvConfig&, const ConvWeights&);

template <const AmxKernels& kKernels>
std::unique_ptr<Conv> amx(const ConvConfig& config, const ConvWeights& weights) {
  return make_amx_conv(config, weights, kKernels);
}
template <const TileKernels& kKernels>
std::unique_ptr<Conv> tiled(const ConvConfig& config, const ConvWeights& weights) {
  return make_tiled_conv(config, weights, kKernels);
}
template <const WinogradKernels& kKernels>
std::unique_ptr<Conv> winograd(const ConvConfig& config, const ConvWeights& weights) {
  return make_winograd_conv(config, weights, kKernels);
}
template <const DepthwiseKernels& kKernels>
std::unique_ptr<Conv> depthwise(const ConvConfig& config, const ConvWeights& weights) {
  return make_depthwise_conv(config, weights, kKernels);
}
#if defined(__x86_64__)
std::unique_ptr<Conv> depthwise_avx2(const ConvConfig& config, const ConvWeights& weights) {
  return make_depthwise_conv(config, weights, kDepthwiseAvx2, &kDepthwiseBytesAvx2);
}
std::unique_ptr<Conv> depthwise_vnni(const ConvConfig& config, const ConvWeights& weights) {
  return make_depthwise_conv(config, weights, kDepthwiseAvx512, &kDepthwiseBytesAvx512Vnni);
}
std::unique_ptr<Conv> depthwise_bf16(const ConvConfig& config, const ConvWeights& weights) {
  if (!cpu_features().avx512_bf16 || config.input != DataType::bf16) return nullptr;
  return make_depthwise_conv(config, weights, kDepthwiseAvx512Bf16);
}
/// vdpbf16ps, where it is the faster way.
std::unique_ptr<Conv> tiled_bf16(const ConvConfig& config, const ConvWeights& weights) {
  if (!cpu_features().avx512_bf16 || cpu_features().intel) return nullptr;
  return make_tiled_conv(config, weights, kTilesBf16Avx512Bf16);
}
#endif

// clang-format off
constexpr Variant<MakeConv> kConvs[] = {
    {Isa::amx, ULP_ON_X86(amx<kAmxKernels>)},
    {Isa::amx_emulated, ULP_ON_X86(amx<kAmxEmulatedKernels>)},
    {Isa::avx512_vnni, ULP_ON_X86(depthwise_bf16)},
    {Isa::avx512_vnni, ULP_ON_X86(depthwise_vnni)},
    {Isa::avx512_vnni, ULP_ON_X86(tiled<kTilesU8Avx512Vnni>)},
    {Isa::avx512_vnni, ULP_ON_X86(tiled_bf16)},
    {Isa::avx512, ULP_ON_X86(depthwise<kDepthwiseAvx512>)},
    {Isa::avx512, ULP_ON_X86(tiled<kTilesF32Avx512>)},
    {Isa::avx512, ULP_ON_X86(tiled<kTilesBf16Avx512>)},
    {Isa::avx512, ULP_ON_X86(tiled<kTilesU8Avx512>)},
    {Isa::avx2, ULP_ON_X86(depthwise_avx2)},
    {Isa::avx2, ULP_ON_X86(tiled<kTilesF32Avx2>)},
    {Isa::avx2, ULP_ON_X86(tiled<kTilesBf16Avx2>)},
    {Isa::avx2, ULP_ON_X86(winograd<kWinogradU8Avx2>)},
    {Isa::avx2, ULP_ON_X86(tiled<kTilesU8Avx2>)},
    {Isa::neon_bf16, ULP_ON_ARM(tiled<kTilesBf16NeonMatrix>)},
    {Isa::neon_bf16, ULP_ON_ARM(tiled<kTilesBf16NeonBf16>)},
    {Isa::neon_i8mm, ULP_ON_ARM(tiled<kTilesU8NeonI8mm>)},
    {Isa::neon_dotprod, ULP_ON_ARM(tiled<kTilesU8NeonDotprod>)},
    {Isa::neon, ULP_ON_ARM(depthwise<kDepthwiseNeon>)},
    {Isa::neon, ULP_ON_ARM(tiled<kTilesF32Neon>)},
    {Isa::neon, ULP_ON_ARM(tiled<kTilesBf16Neon>)},
    {Isa::neon, ULP_ON_ARM(tiled<kTilesU8Neon>)},
    {Isa::portable, make_reference_conv},
};
// clang-format on

}  // namespace

void check_shape(const ConvShape& s) {
  const struct {
    const char* what;
    int64_t value, low;
  } ranges[] = {{"in_h", s.in_h, 1},
                {"in_w", s.in_w, 1},
                {"in_channels", s.in_channels, 1},
                {"out_channels", s.out_channels, 1},
                {"kernel_h", s.kernel_h, 1},
                {"kernel_w", s.kernel_w, 1},
                {"stride_h", s.stride_h, 1},
                {"stride_w", s.stride_w, 1},
                {"pad_h", s.pad_h, 0},
                {"pad_w", s.pad_w, 0},
                {"dilation_h", s.dilation_h, 1},
                {"dilation_w", s.dilation_w, 1},
                {"groups", s.groups, 1}};
  for (const auto& [what, value, low] : ranges) check_range(what, value, low);
  if (s.in_channels % s.groups != 0 || s.out_channels % s.groups != 0) {
    fail(kWhere, "expected groups to divide the channels, got ", s.in_channels, " -> ", s.out_channels,
         " in ", s.groups, " groups");
  }
  const int64_t span_h = s.dilation_h * (s.kernel_h - 1) + 1, span_w = s.dilation_w * (s.kernel_w - 1) + 1;
  if (span_h > s.in_h + 2 * s.pad_h || span_w > s.in_w + 2 * s.pad_w) {
    fail(kWhere, "expected the kernel to fit into the padded image, got a kernel of ", span_h, "x", span_w,
         " over an image of ", s.in_h + 2 * s.pad_h, "x", s.in_w + 2 * s.pad_w);
  }
  check_product("weights", {s.kernel_h, s.kernel_w, s.in_channels / s.groups, s.out_channels});
  check_product("padded input elements", {s.in_h + 2 * s.pad_h, s.in_w + 2 * s.pad_w, s.in_channels});
  check_product("output elements", {s.out_h(), s.out_w(), s.out_channels});
}

FinishData make_finish(const ConvConfig& config, const ConvWeights& weights, int64_t channels,
                       bool fold_zero_point, int32_t input_offset) {
  FinishData out;
  const int64_t n = config.shape.out_channels;
  out.bias = AlignedBuffer(channels * 4);
  out.finish.bias = out.bias.data();
  if (config.input == DataType::u8) {
    if (weights.bias_i32 != nullptr) std::copy_n(weights.bias_i32, n, out.bias.as<int32_t>());
    if (fold_zero_point) fold_input_zero_point(config, weights, input_offset, out.bias.as<int32_t>());
    out.multiplier = AlignedBuffer(channels * 4);
    set_multiplier(config, weights, &out);
    out.finish.multiplier = out.multiplier.as<float>();
  } else if (weights.bias != nullptr) {
    std::copy_n(weights.bias, n, out.bias.as<float>());
  }
  const Clamp clamp = config.output == DataType::u8 ? clamp_of(config.activation, config.output_q)
                                                    : clamp_of(config.activation);
  out.finish.lo = clamp.low;
  out.finish.hi = clamp.high;
  out.finish.curve = curve_of(config.activation);
  if (config.output == DataType::u8) out.finish.to_codes = 1.0F / config.output_q.scale;
  out.finish.output = config.output;
  out.finish.output_zero = config.output == DataType::u8 ? config.output_q.zero_point : 0;
  out.finish.residual_type = config.residual_type;
  const bool codes = config.output == DataType::u8 && !is_smooth_activation(config.activation);
  const float unit = codes ? config.output_q.scale : 1.0F;  // in which a residual is added
  if (config.residual && config.residual_type == DataType::u8) {
    out.finish.residual_scale = config.residual_q.scale / unit;
    if (!std::isfinite(out.finish.residual_scale)) {
      fail(kWhere, "expected scales of the residual and the output with a finite ratio");
    }
    out.finish.residual_zero = static_cast<float>(config.residual_q.zero_point);
  } else {
    out.finish.residual_scale = 1.0F / unit;
  }
  return out;
}

void check_layer(const ConvConfig& config, const ConvWeights& weights) {
  check_shape(config.shape);
  check_types(config, weights);
}

std::unique_ptr<Conv> make_conv(const ConvConfig& config, const ConvWeights& weights, Isa isa) {
  check_layer(config, weights);
  return make_first(kConvs, isa, config, weights);
}

}  // namespace ulp::kernels
