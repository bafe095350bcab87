#include "ulp/kernels/linear/dynamic_linear.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/conv/work_split.h"
#include "ulp/kernels/elementwise/curves.h"
#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/linear/dynamic_rows.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kCacheBytes = 128 << 10;  // quantized rows of a task: stay in the second-level cache

/// The constants of the epilogue, zero behind the last channel.
struct Epilogue {
  AlignedBuffer zeros, multiplier, weight_sum, bias;
  Finish finish;
};

Epilogue make_epilogue(const DynamicLinearConfig& config, const DynamicLinearWeights& weights,
                       int64_t channels) {
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
  }
  const float infinity = std::numeric_limits<float>::infinity();
  const bool clamps = config.activation == Activation::relu || config.activation == Activation::relu6;
  e.finish.lo = clamps ? 0.0F : -infinity;
  e.finish.hi = config.activation == Activation::relu6 ? 6.0F : infinity;
  if (is_curve(config.activation)) e.finish.curve = config.activation;
  e.finish.bias = e.zeros.data();
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
        epilogue_(make_epilogue(config, weights, config.out)),
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
    if (is_curve(f.curve)) apply_curve(f.curve, y, y, config_.out);
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
  conv.input = Element::u8;
  return conv;
}

/// On the register tiles of the 8-bit convolutions.
class TiledDynamicLinear final : public DynamicLinear {
 public:
  TiledDynamicLinear(const DynamicLinearConfig& config, const DynamicLinearWeights& weights,
                     const TileKernels& kernels, Isa isa)
      : config_(config),
        kernels_(kernels),
        layout_(tap_layout(conv_config(config).shape, kernels.unit)),
        panels_(ceil_div(config.out, kernels.lanes)),
        panel_bytes_(layout_.units * kernels.lanes * 4),
        epilogue_(make_epilogue(config, weights, panels_ * kernels.lanes)),
        rows_(config.in, layout_.units * 4, config.per_tensor, kernels.copy, isa) {
    ConvWeights packed;
    packed.i8 = weights.codes;
    packed_ = pack_panels(conv_config(config), packed, layout_, kernels.unit, kernels.lanes,
                          element_of(kernels.stage));
  }

  size_t workspace_bytes(int64_t rows, int workers) const override {
    return rows_.workspace_bytes(rows, workers);
  }

  void run(int64_t rows, const float* x, const float* residual, float* y, void* workspace,
           const Parallel& parallel) const override {
    if (rows < 1) return;
    const QuantizedRows quantized = rows_.quantize(rows, x, workspace, parallel);
    const WorkSplit work = split(rows, parallel.workers());
    parallel.run(work.tasks(), [&](int64_t i, int) {
      run_task(work.task(i), work.parts, quantized, config_.residual ? residual : nullptr, y);
    });
  }

  std::string name() const override { return std::string("dynamic_") + kernels_.name; }

 private:
  WorkSplit split(int64_t rows, int workers) const {
    const int64_t row = layout_.units * 4;
    const int64_t cached = std::max<int64_t>(1, kCacheBytes / (row * kMaxTilePixels)) * kMaxTilePixels;
    return split_work(1, rows, cached, kMaxTilePixels, ceil_div(panels_, 2),
                      static_cast<double>(rows) * static_cast<double>(config_.in * config_.out),
                      panels_ * panel_bytes_ > rows * row, workers);
  }

  void run_task(const WorkSplit::Task& task, int64_t parts, const QuantizedRows& rows, const float* residual,
                float* y) const {
    const int64_t pairs = ceil_div(panels_, 2), no_offset = 0;
    const int64_t end = std::min(panels_, 2 * ((task.part + 1) * pairs / parts));
    TileArgs args{};
    args.a_step = layout_.units * 4;
    args.taps = &no_offset;
    args.tap_count = 1;
    args.tap_units = layout_.units;
    args.b_panel = panel_bytes_;
    args.finish = &epilogue_.finish;
    args.y_step = config_.out;
    for (int64_t panel = 2 * (task.part * pairs / parts); panel < end;) {
      const int log2 = panel_choice(end - panel, task.end - task.first);
      args.b = packed_.data() + panel * panel_bytes_;
      args.channel = panel * kernels_.lanes;
      args.channels = config_.out - args.channel;
      run_rows(task, log2, rows, residual, y, args);
      panel += 1 << log2;
    }
  }

  int panel_choice(int64_t left, int64_t rows) const {
    if (left >= 4 && rows <= kernels_.max_pixels[2]) return 2;
    return left >= 2 && kernels_.max_pixels[1] > 0 ? 1 : 0;
  }

  /// Cuts the rows of a task into tiles of nearly equal height.
  void run_rows(const WorkSplit::Task& task, int log2, const QuantizedRows& rows, const float* residual,
                float* y, TileArgs& args) const {
    const int64_t total = task.end - task.first, tiles = ceil_div(total, kernels_.max_pixels[log2]);
    int64_t row = task.first;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t count = total / tiles + (i < total % tiles);
      const int64_t at = row * config_.out + args.channel;
      args.a = rows.data + row * args.a_step;
      args.row_scale = rows.scale + row;
      args.row_zero = rows.zero + row;
      args.y = y + at;
      args.residual = residual == nullptr ? nullptr : residual + at;
      kernels_.tile[log2][count](args);
      row += count;
    }
  }

  DynamicLinearConfig config_;
  const TileKernels& kernels_;
  TapLayout layout_;
  int64_t panels_, panel_bytes_;
  Epilogue epilogue_;
  AlignedBuffer packed_;
  DynamicRows rows_;
};

}  // namespace

std::unique_ptr<DynamicLinear> make_dynamic_linear(const DynamicLinearConfig& config,
                                                   const DynamicLinearWeights& weights, Isa isa) {
  constexpr const char* kWhere = "kernels.make_dynamic_linear";
  constexpr int64_t kMaxIn = int64_t{1} << 16, kMaxOut = int64_t{1} << 24;
  if (config.in < 1 || config.in > kMaxIn || config.out < 1 || config.out > kMaxOut) {
    fail(kWhere, "expected 1 to ", kMaxIn, " input and 1 to ", kMaxOut, " output features, got ", config.in,
         " and ", config.out);
  }
  if (weights.codes == nullptr || weights.scale == nullptr) fail(kWhere, "expected int8 weights and scales");
  switch (isa) {
    case Isa::portable:
      return std::make_unique<ReferenceDynamicLinear>(config, weights);
    case Isa::avx2:
      return std::make_unique<TiledDynamicLinear>(config, weights, kTilesU8Avx2, isa);
    default:
      break;
  }
  const bool vnni = isa != Isa::avx512 && cpu_features().avx512_vnni;
  return std::make_unique<TiledDynamicLinear>(config, weights, vnni ? kTilesU8Avx512Vnni : kTilesU8Avx512,
                                              isa);
}

}  // namespace ulp::kernels
