#include "ulp/kernels/conv/conv.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <new>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/isa/cpu.h"

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

void check_shape(const ConvShape& s) {
  check_range("in_h", s.in_h, 1);
  check_range("in_w", s.in_w, 1);
  check_range("in_channels", s.in_channels, 1);
  check_range("out_channels", s.out_channels, 1);
  check_range("kernel_h", s.kernel_h, 1);
  check_range("kernel_w", s.kernel_w, 1);
  check_range("stride_h", s.stride_h, 1);
  check_range("stride_w", s.stride_w, 1);
  check_range("pad_h", s.pad_h, 0);
  check_range("pad_w", s.pad_w, 0);
  check_range("dilation_h", s.dilation_h, 1);
  check_range("dilation_w", s.dilation_w, 1);
  check_range("groups", s.groups, 1);
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

void check_affine(const char* what, const Affine& q) {
  if (!std::isfinite(q.scale) || q.scale <= 0)
    fail(kWhere, "expected a positive ", what, " scale, got ", q.scale);
  if (q.zero_point < 0 || q.zero_point > 255) {
    fail(kWhere, "expected a ", what, " zero point in [0, 255], got ", q.zero_point);
  }
}

void check_types(const ConvConfig& c, const ConvWeights& w) {
  const bool integer = c.input == Element::u8;
  const bool accepted =
      (c.input == Element::f32 && c.output == Element::f32) ||
      (c.input == Element::bf16 && (c.output == Element::bf16 || c.output == Element::f32)) ||
      (integer && (c.output == Element::u8 || c.output == Element::f32));
  if (!accepted) {
    fail(kWhere,
         "expected f32 -> f32, bf16 -> bf16 or f32, or u8 -> u8 or f32; got another pair of element types");
  }
  if (c.residual && c.residual_type != Element::f32 && c.residual_type != Element::bf16 &&
      c.residual_type != Element::u8) {
    fail(kWhere, "expected a residual of f32, bf16 or u8");
  }
  if (is_curve(c.activation) && (c.output != Element::f32 || c.shape.groups != 1)) {
    fail(kWhere, "expected gelu and tanh only on f32 results of a layer without groups");
  }
  if (integer && (w.i8 == nullptr || w.scale == nullptr))
    fail(kWhere, "expected i8 weights and their scales");
  const bool has_floats = w.f32 != nullptr || (c.input == Element::bf16 && w.bf16 != nullptr);
  if (!integer && !has_floats) fail(kWhere, "expected f32 weights, or bf16 ones for a bf16 layer");
  if (integer) check_affine("input", c.input_q);
  if (c.output == Element::u8) check_affine("output", c.output_q);
  if (c.residual && c.residual_type == Element::u8) check_affine("residual", c.residual_q);
}

void set_clamp(const ConvConfig& config, Finish* f) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float unit = config.output == Element::u8 ? config.output_q.scale : 1.0F;
  const bool clamps = config.activation == Activation::relu || config.activation == Activation::relu6;
  f->lo = clamps ? 0.0F : -infinity;
  f->hi = config.activation == Activation::relu6 ? 6.0F / unit : infinity;
  if (config.output == Element::u8) {
    f->lo = std::max(f->lo, static_cast<float>(-config.output_q.zero_point));
    f->hi = std::min(f->hi, static_cast<float>(255 - config.output_q.zero_point));
  }
}

void set_multiplier(const ConvConfig& config, const ConvWeights& weights, FinishData* out) {
  for (int64_t c = 0; c < config.shape.out_channels; ++c) {
    float m = config.input_q.scale * weights.scale[c];
    if (config.output == Element::u8) m /= config.output_q.scale;
    if (!std::isfinite(m))
      fail(kWhere, "expected finite scales, got a multiplier of ", m, " for channel ", c);
    out->multiplier.as<float>()[c] = m;
  }
}

void fold_input_zero_point(const ConvConfig& config, const ConvWeights& weights, int32_t* bias) {
  const ConvShape& s = config.shape;
  const int64_t k = s.in_channels / s.groups * s.kernel_h * s.kernel_w;
  for (int64_t c = 0; c < s.out_channels; ++c) {
    uint32_t sum = 0;  // wraps like the accumulators do
    for (int64_t i = 0; i < k; ++i) sum += static_cast<uint32_t>(int32_t{weights.i8[c * k + i]});
    bias[c] = static_cast<int32_t>(static_cast<uint32_t>(bias[c]) -
                                   static_cast<uint32_t>(config.input_q.zero_point) * sum);
  }
}

std::unique_ptr<Conv> make_avx2(const ConvConfig& config, const ConvWeights& weights) {
  if (auto conv = make_depthwise_conv(config, weights, kDepthwiseAvx2)) return conv;
  switch (config.input) {
    case Element::f32:
      return make_tiled_conv(config, weights, kTilesF32Avx2);
    case Element::bf16:
      return make_tiled_conv(config, weights, kTilesBf16Avx2);
    default:
      return make_tiled_conv(config, weights, kTilesU8Avx2);
  }
}

/// `extensions`: VNNI, and vdpbf16ps where it is the faster way.
std::unique_ptr<Conv> make_avx512(const ConvConfig& config, const ConvWeights& weights, bool extensions) {
  const bool vnni = extensions && cpu_features().avx512_vnni;
  const DepthwiseFn bytes = vnni ? kDepthwiseBytesAvx512Vnni : nullptr;
  if (auto conv = make_depthwise_conv(config, weights, kDepthwiseAvx512, bytes)) return conv;
  if (config.input == Element::f32) return make_tiled_conv(config, weights, kTilesF32Avx512);
  if (config.input == Element::u8) {
    return make_tiled_conv(config, weights, vnni ? kTilesU8Avx512Vnni : kTilesU8Avx512);
  }
  if (extensions && cpu_features().avx512_bf16 && !cpu_features().intel) {
    if (auto conv = make_tiled_conv(config, weights, kTilesBf16Avx512Bf16)) return conv;
  }
  return make_tiled_conv(config, weights, kTilesBf16Avx512);
}

std::unique_ptr<Conv> make_amx(const ConvConfig& config, const ConvWeights& weights,
                               const AmxKernels& kernels) {
  const bool depthwise = config.shape.groups > 1 && config.shape.groups == config.shape.in_channels &&
                         config.shape.groups == config.shape.out_channels;
  if (!depthwise && !is_curve(config.activation)) {
    if (auto conv = make_amx_conv(config, weights, kernels)) return conv;
  }
  return make_avx512(config, weights, true);
}

}  // namespace

AlignedBuffer::AlignedBuffer(int64_t bytes) {
  const size_t size = static_cast<size_t>(round_up(std::max<int64_t>(bytes, 1), 64));
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, size)));
  if (!data_) throw std::bad_alloc();
  std::fill_n(data_.get(), size, uint8_t{0});
}

FinishData make_finish(const ConvConfig& config, const ConvWeights& weights, int64_t channels,
                       bool fold_zero_point) {
  FinishData out;
  const int64_t n = config.shape.out_channels;
  out.bias = AlignedBuffer(channels * 4);
  out.finish.bias = out.bias.data();
  if (config.input == Element::u8) {
    if (weights.bias_i32 != nullptr) std::copy_n(weights.bias_i32, n, out.bias.as<int32_t>());
    if (fold_zero_point) fold_input_zero_point(config, weights, out.bias.as<int32_t>());
    out.multiplier = AlignedBuffer(channels * 4);
    set_multiplier(config, weights, &out);
    out.finish.multiplier = out.multiplier.as<float>();
  } else if (weights.bias != nullptr) {
    std::copy_n(weights.bias, n, out.bias.as<float>());
  }
  set_clamp(config, &out.finish);
  if (is_curve(config.activation)) out.finish.curve = config.activation;
  out.finish.output = config.output;
  out.finish.output_zero = config.output == Element::u8 ? config.output_q.zero_point : 0;
  out.finish.residual_type = config.residual_type;
  const float unit = config.output == Element::u8 ? config.output_q.scale : 1.0F;
  if (config.residual && config.residual_type == Element::u8) {
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

std::unique_ptr<Conv> make_conv(const ConvConfig& config, const ConvWeights& weights, Isa isa) {
  check_shape(config.shape);
  check_types(config, weights);
  std::unique_ptr<Conv> conv;
  switch (isa) {
    case Isa::amx:
      conv = make_amx(config, weights, kAmxKernels);
      break;
    case Isa::amx_emulated:
      conv = make_amx(config, weights, kAmxEmulatedKernels);
      break;
    case Isa::avx512_vnni:
    case Isa::avx512:
      conv = make_avx512(config, weights, isa != Isa::avx512);
      break;
    case Isa::avx2:
      conv = make_avx2(config, weights);
      break;
    case Isa::portable:
      break;
  }
  return conv ? std::move(conv) : make_reference_conv(config, weights);
}

}  // namespace ulp::kernels
