#include "ulp/kernels/linear/weight_linear.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/kernels/common/aligned_buffer.h"
#include "ulp/kernels/common/clamp.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/linear/weight_tile.h"
#include "ulp/kernels/matmul/matmul_ops.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kRowBlock = 56;   // rows of a task: a panel's codes are read once for all of them
constexpr int64_t kDenseRows = 24;  // from here on a block of weights is unpacked once
constexpr int64_t kDenseChannels =
    2 * kWeightLanes;                // of such a block; a multiple of every matmul panel's width
constexpr int64_t kDenseChunk = 96;  // rows whose sums stay in the cache until they are finished

constexpr Variant<const WeightTiles*> kTables[] = {{Isa::avx512, ULP_ON_X86(&kWeightTilesAvx512)},
                                                   {Isa::avx2, ULP_ON_X86(&kWeightTilesAvx2)},
                                                   {Isa::neon, ULP_ON_ARM(&kWeightTilesNeon)},
                                                   {Isa::portable, &kWeightTilesPortable}};

const WeightTiles& tiles_of(Isa isa) {
  return *first_admitted(kTables, isa);
}

class PanelWeightLinear final : public WeightLinear {
 public:
  PanelWeightLinear(const WeightLinearConfig& config, const WeightLinearWeights& weights, Isa isa)
      : config_(config),
        isa_(isa),
        kernel_(config.bits == 4 ? tiles_of(isa).bits4 : tiles_of(isa).bits8),
        finish_(tiles_of(isa).finish),
        dense_(matmul_ops(isa)),
        groups_(ceil_div(config.in, config.group)),
        panels_(ceil_div(config.out, kWeightLanes)),
        panel_bytes_(ceil_div(config.in, config.bits == 4 ? 2 : 1) * kWeightLanes),
        codes_(panels_ * panel_bytes_),
        scale_(panels_ * groups_ * kWeightLanes * 4),
        zero_(panels_ * groups_ * kWeightLanes * 4),
        bias_(panels_ * kWeightLanes * 4) {
    for (int64_t c = 0; c < config.out; ++c) pack_channel(weights, c);
  }

  size_t workspace_bytes(int64_t rows, int workers) const override {
    return rows < kDenseRows ? 0 : static_cast<size_t>(workers * block_floats()) * sizeof(float);
  }

  void run(int64_t rows, const float* x, const float* residual, float* y, void* workspace,
           const Parallel& parallel) const override {
    const Rows all{x, config_.residual ? residual : nullptr, y};
    if (rows >= kDenseRows) return run_dense(rows, all, static_cast<float*>(workspace), parallel);
    const int64_t blocks = ceil_div(rows, kRowBlock);
    // Panels of one block follow each other: its rows stay in the cache.
    parallel.run(blocks * panels_, [&](int64_t task, int) {
      const int64_t row = task / panels_ * kRowBlock;
      kernel_.tile(
          tile_args(row, std::min(kRowBlock, rows - row), task % panels_ * kWeightLanes, kWeightLanes, all));
    });
  }

  std::string name() const override {
    return "weight" + std::to_string(config_.bits) + "_" + to_string(isa_);
  }

 private:
  void pack_channel(const WeightLinearWeights& weights, int64_t c) {
    const int64_t panel = c / kWeightLanes, lane = c % kWeightLanes, per_byte = config_.bits == 4 ? 2 : 1;
    const auto* from = static_cast<const uint8_t*>(weights.codes) + c * groups_ * (config_.group / per_byte);
    uint8_t* codes = codes_.data() + panel * panel_bytes_ + lane;
    for (int64_t i = 0; i < ceil_div(config_.in, per_byte); ++i) codes[i * kWeightLanes] = from[i];
    for (int64_t g = 0; g < groups_; ++g) {
      const int64_t at = (panel * groups_ + g) * kWeightLanes + lane;
      const float middle = config_.bits == 4 ? 8.0F : 0.0F;
      scale_.as<float>()[at] = weights.scale[c * groups_ + g];
      zero_.as<float>()[at] =
          weights.zero == nullptr ? middle : static_cast<float>(weights.zero[c * groups_ + g]);
    }
    if (weights.bias != nullptr) bias_.as<float>()[c] = weights.bias[c];
  }

  /// What a run reads and writes, from its first row on.
  struct Rows {
    const float* x;
    const float* residual;  ///< or null
    float* y;
  };

  /// `channel`: the first one, that of a panel.
  WeightTileArgs tile_args(int64_t row, int64_t rows, int64_t channel, int64_t channels,
                           const Rows& all) const {
    const int64_t panel = channel / kWeightLanes, at = row * config_.out + channel;
    const Clamp clamp = clamp_of(config_.activation);
    return {.x = all.x + row * config_.in,
            .x_stride = config_.in,
            .rows = rows,
            .codes = codes_.data() + panel * panel_bytes_,
            .scale = scale_.as<float>() + panel * groups_ * kWeightLanes,
            .zero = zero_.as<float>() + panel * groups_ * kWeightLanes,
            .in = config_.in,
            .group = config_.group,
            .bias = bias_.as<float>() + channel,
            .residual = all.residual == nullptr ? nullptr : all.residual + at,
            .y = all.y + at,
            .y_stride = config_.out,
            .channels = std::min(channels, config_.out - channel),
            .lo = clamp.low,
            .hi = clamp.high,
            .curve = curve_of(config_.activation)};
  }

  /// Of unpacked weights, [in][kDenseChannels].
  int64_t block_floats() const { return config_.in * kDenseChannels; }

  void run_dense(int64_t rows, const Rows& all, float* workspace, const Parallel& parallel) const {
    const int64_t blocks = ceil_div(config_.out, kDenseChannels);
    // Few channels: the rows are shared out, too.
    const int64_t parts =
        std::clamp(ceil_div(2 * parallel.workers(), blocks), int64_t{1}, ceil_div(rows, kDenseChunk));
    const int64_t each = ceil_div(rows, parts);
    parallel.run(blocks * parts, [&](int64_t task, int worker) {
      const int64_t channel = task / parts * kDenseChannels, first = task % parts * each;
      float* weights = workspace + worker * block_floats();
      for (int64_t c = 0; c < kDenseChannels && channel + c < config_.out; c += kWeightLanes) {
        kernel_.unpack(tile_args(0, 0, channel + c, kWeightLanes, all), weights + c, kDenseChannels);
      }
      const int64_t last = std::min(rows, first + each);
      for (int64_t row = first; row < last; row += kDenseChunk) {
        run_chunk(tile_args(row, std::min(kDenseChunk, last - row), channel, kDenseChannels, all), weights);
      }
    });
  }

  void run_chunk(const WeightTileArgs& args, const float* weights) const {
    for (int64_t c = 0; c < args.channels; c += dense_.width) {
      dense_.panel({.a = args.x,
                    .a_stride = args.x_stride,
                    .b = weights + c,
                    .b_stride = kDenseChannels,
                    .c = args.y + c,
                    .c_stride = args.y_stride,
                    .rows = args.rows,
                    .depth = args.in,
                    .columns = std::min(dense_.width, args.channels - c),
                    .adds = false});
    }
    finish_(args);
  }

  WeightLinearConfig config_;
  Isa isa_;
  WeightKernel kernel_;
  WeightTileFn finish_;
  const MatmulOps& dense_;
  int64_t groups_, panels_, panel_bytes_;
  AlignedBuffer codes_, scale_, zero_, bias_;
};

}  // namespace

std::unique_ptr<WeightLinear> make_weight_linear(const WeightLinearConfig& config,
                                                 const WeightLinearWeights& weights, Isa isa) {
  constexpr const char* kWhere = "kernels.make_weight_linear";
  if (config.in < 1 || config.out < 1 || config.group < 1) {
    fail(kWhere, "expected sizes of at least 1, got ", config.in, ", ", config.out, " and groups of ",
         config.group);
  }
  if (config.bits != 8 && config.bits != 4) fail(kWhere, "expected 8 or 4 bits, got ", config.bits);
  if (config.bits == 4 && config.group % 2 != 0) {
    fail(kWhere, "expected an even group of 4-bit codes, got ", config.group);
  }
  if (weights.codes == nullptr || weights.scale == nullptr) fail(kWhere, "expected codes and scales");
  return std::make_unique<PanelWeightLinear>(config, weights, isa);
}

}  // namespace ulp::kernels
