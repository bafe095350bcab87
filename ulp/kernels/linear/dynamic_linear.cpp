#include "ulp/kernels/linear/dynamic_linear.h"

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/kernels/common/clamp.h"
#include "ulp/kernels/conv/tile_panels.h"
#include "ulp/kernels/elementwise/activations.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/linear/dynamic_rows.h"

namespace ulp::kernels {
namespace {

static_assert(kMaxDynamicFeatures * 255 * 128 <= INT32_MAX);

/// The constants of the epilogue, zero behind the last channel.
struct Epilogue {
  AlignedBuffer start, multiplier, weight_sum, bias;
  Finish finish;
};

/// `input_offset`: see TileKernels.
Epilogue make_epilogue(const DynamicLinearConfig& config, const DynamicLinearWeights& weights,
                       int64_t channels, int32_t input_offset) {
  Epilogue e{AlignedBuffer(channels * 4),
             AlignedBuffer(channels * 4),
             AlignedBuffer(channels * 4),
             AlignedBuffer(channels * 4),
             {}};
  std::copy_n(weights.scale, config.out, e.multiplier.as<float>());
  if (weights.bias != nullptr) std::copy_n(weights.bias, config.out, e.bias.as<float>());
  for (int64_t c = 0; c < config.out; ++c) {
    int32_t sum = 0;
    for (int64_t k = 0; k < config.in; ++k) sum += weights.codes[c * config.in + k];
    e.weight_sum.as<int32_t>()[c] = sum;
    e.start.as<int32_t>()[c] = input_offset * sum;
  }
  e.finish.lo = clamp_of(config.activation).low;
  e.finish.hi = clamp_of(config.activation).high;
  e.finish.curve = curve_of(config.activation);
  e.finish.bias = e.start.data();
  e.finish.multiplier = e.multiplier.as<float>();
  e.finish.weight_sum = e.weight_sum.as<int32_t>();
  e.finish.bias_f32 = e.bias.as<float>();
  return e;
}

/// Plain loops.
class ReferenceDynamicLinear final : public DynamicLinear {
 public:
  ReferenceDynamicLinear(const DynamicLinearConfig& config, const DynamicLinearWeights& weights)
      : config_(config),
        epilogue_(make_epilogue(config, weights, config.out, 0)),
        codes_(config.in * config.out),
        rows_(config.in, config.in, config.per_tensor, nullptr, Isa::portable) {
    std::copy_n(weights.codes, config.in * config.out, codes_.as<int8_t>());
  }

  size_t workspace_bytes(int64_t rows, int workers) const override {
    return rows_.workspace_bytes(rows, workers);
  }

  void run(int64_t rows, const float* x, const float* residual, float* y, void* workspace,
           const Parallel& parallel) const override {
    const QuantizedRows quantized = rows_.quantize(rows, x, workspace, parallel);
    parallel.run(rows, [&](int64_t r, int) {
      const float* added = config_.residual ? residual + r * config_.out : nullptr;
      row(quantized.data + r * config_.in, quantized.scale[r], quantized.zero[r], added, y + r * config_.out);
    });
  }

  std::string name() const override { return "dynamic_u8_portable"; }

 private:
  void row(const uint8_t* q, float scale, int32_t zero, const float* residual, float* y) const {
    const Finish& f = epilogue_.finish;
    for (int64_t c = 0; c < config_.out; ++c) {
      const int8_t* w = codes_.as<int8_t>() + c * config_.in;
      int32_t sum = 0;
      for (int64_t k = 0; k < config_.in; ++k) sum += (int32_t{q[k]} - zero) * int32_t{w[k]};
      const float v = static_cast<float>(sum) * (scale * f.multiplier[c]) + f.bias_f32[c];
      finish_store(f, v, residual, y, c);
    }
    if (f.curve != Activation::none) apply_curve(f.curve, y, y, config_.out);
  }

  DynamicLinearConfig config_;
  Epilogue epilogue_;
  AlignedBuffer codes_;
  DynamicRows rows_;
};

ConvConfig conv_config(const DynamicLinearConfig& config) {
  ConvConfig conv;
  conv.shape.in_channels = config.in;
  conv.shape.out_channels = config.out;
  conv.input = DataType::u8;
  return conv;
}

ConvWeights conv_weights(const DynamicLinearWeights& weights) {
  ConvWeights conv;
  conv.i8 = weights.codes;
  return conv;
}

/// On the register tiles of the 8-bit convolutions.
class TiledDynamicLinear final : public DynamicLinear {
 public:
  TiledDynamicLinear(const DynamicLinearConfig& config, const DynamicLinearWeights& weights,
                     const TileKernels& kernels, Isa isa)
      : config_(config),
        name_(std::string("dynamic_") + kernels.name),
        panels_(conv_config(config), conv_weights(weights), kernels),
        epilogue_(make_epilogue(config, weights, panels_.padded_channels(), kernels.input_offset)),
        row_bytes_(panels_.layout().units * kernels.unit_bytes),
        rows_(config.in, row_bytes_, config.per_tensor, kernels.copy, isa) {}

  size_t workspace_bytes(int64_t rows, int workers) const override {
    return rows_.workspace_bytes(rows, workers);
  }

  void run(int64_t rows, const float* x, const float* residual, float* y, void* workspace,
           const Parallel& parallel) const override {
    if (rows < 1) return;
    const QuantizedRows quantized = rows_.quantize(rows, x, workspace, parallel);
    const WorkSplit work = split(rows, parallel.workers());
    const TileOutput output{
        .y = reinterpret_cast<uint8_t*>(y),
        .y_bytes = sizeof(float),
        .residual = config_.residual ? reinterpret_cast<const uint8_t*>(residual) : nullptr,
        .residual_bytes = sizeof(float),
        .row_scale = quantized.scale,
        .row_zero = quantized.zero,
    };
    const int64_t no_offset = 0;
    TileArgs args{};
    args.a_step = row_bytes_;
    args.taps = &no_offset;
    args.finish = &epilogue_.finish;
    parallel.run(work.tasks(), [&](int64_t i, int) {
      const WorkSplit::Task task = work.task(i);
      const PixelRows pixels{quantized.data + task.first * args.a_step, 0, task.first, 1,
                             task.end - task.first};
      panels_.run(pixels, output, 0, task.part, work.parts, args);
    });
  }

  std::string name() const override { return name_; }

 private:
  WorkSplit split(int64_t rows, int workers) const {
    const int64_t cached = std::max<int64_t>(1, kStageBytes / (row_bytes_ * kMaxTilePixels)) * kMaxTilePixels;
    return split_work({.images = 1,
                       .rows = rows,
                       .cache_rows = cached,
                       .grain = 1,
                       .pairs = ceil_div(panels_.panels(), 2),
                       .macs = static_cast<double>(rows) * static_cast<double>(config_.in * config_.out),
                       .weight_bytes = panels_.bytes(),
                       .input_bytes = rows * row_bytes_},
                      workers);
  }

  DynamicLinearConfig config_;
  std::string name_;
  TilePanels panels_;
  Epilogue epilogue_;
  int64_t row_bytes_;
  DynamicRows rows_;
};

using MakeDynamicLinear = std::unique_ptr<DynamicLinear> (*)(const DynamicLinearConfig&,
                                                             const DynamicLinearWeights&, Isa);

template <const TileKernels& kKernels>
std::unique_ptr<DynamicLinear> tiled(const DynamicLinearConfig& config, const DynamicLinearWeights& weights,
                                     Isa isa) {
  return std::make_unique<TiledDynamicLinear>(config, weights, kKernels, isa);
}
std::unique_ptr<DynamicLinear> reference(const DynamicLinearConfig& config,
                                         const DynamicLinearWeights& weights, Isa) {
  return std::make_unique<ReferenceDynamicLinear>(config, weights);
}

constexpr Variant<MakeDynamicLinear> kDynamicLinears[] = {
    {Isa::avx512_vnni, ULP_ON_X86(tiled<kTilesU8Avx512Vnni>)},
    {Isa::avx512, ULP_ON_X86(tiled<kTilesU8Avx512>)},
    {Isa::avx2, ULP_ON_X86(tiled<kTilesU8Avx2>)},
    {Isa::neon_i8mm, ULP_ON_ARM(tiled<kTilesU8NeonI8mm>)},
    {Isa::neon_dotprod, ULP_ON_ARM(tiled<kTilesU8NeonDotprod>)},
    {Isa::neon, ULP_ON_ARM(tiled<kTilesU8Neon>)},
    {Isa::portable, reference},
};

}  // namespace

std::unique_ptr<DynamicLinear> make_dynamic_linear(const DynamicLinearConfig& config,
                                                   const DynamicLinearWeights& weights, Isa isa) {
  constexpr const char* kWhere = "kernels.make_dynamic_linear";
  constexpr int64_t kMaxOut = int64_t{1} << 24;
  if (config.in < 1 || config.in > kMaxDynamicFeatures || config.out < 1 || config.out > kMaxOut) {
    fail(kWhere, "expected 1 to ", kMaxDynamicFeatures, " input and 1 to ", kMaxOut, " output features, got ",
         config.in, " and ", config.out);
  }
  if (weights.codes == nullptr || weights.scale == nullptr) fail(kWhere, "expected int8 weights and scales");
  return make_first(kDynamicLinears, isa, config, weights, isa);
}

}  // namespace ulp::kernels
