#include "ulp/kernels/linear/weight_linear.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/kernels/common/aligned_buffer.h"
#include "ulp/kernels/common/clamp.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/linear/weight_tile.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kRowBlock = 56;  // rows of a task: a panel's codes are read once for all of them

constexpr Variant<const WeightTiles*> kTables[] = {{Isa::avx512, &kWeightTilesAvx512},
                                                   {Isa::avx2, &kWeightTilesAvx2},
                                                   {Isa::portable, &kWeightTilesPortable}};

const WeightTiles& tiles_of(Isa isa) {
  return *first_admitted(kTables, isa);
}

class PanelWeightLinear final : public WeightLinear {
 public:
  PanelWeightLinear(const WeightLinearConfig& config, const WeightLinearWeights& weights, Isa isa)
      : config_(config),
        isa_(isa),
        tile_(config.bits == 4 ? tiles_of(isa).bits4 : tiles_of(isa).bits8),
        groups_(ceil_div(config.in, config.group)),
        panels_(ceil_div(config.out, kWeightLanes)),
        panel_bytes_(ceil_div(config.in, config.bits == 4 ? 2 : 1) * kWeightLanes),
        codes_(panels_ * panel_bytes_),
        scale_(panels_ * groups_ * kWeightLanes * 4),
        zero_(panels_ * groups_ * kWeightLanes * 4),
        bias_(panels_ * kWeightLanes * 4) {
    for (int64_t c = 0; c < config.out; ++c) pack_channel(weights, c);
  }

  void run(int64_t rows, const float* x, const float* residual, float* y,
           const Parallel& parallel) const override {
    const int64_t blocks = ceil_div(rows, kRowBlock);
    // Panels of one block follow each other: its rows stay in the cache.
    parallel.run(blocks * panels_, [&](int64_t task, int) {
      run_tile(task / panels_ * kRowBlock, rows, task % panels_, x, config_.residual ? residual : nullptr, y);
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

  void run_tile(int64_t row, int64_t rows, int64_t panel, const float* x, const float* residual,
                float* y) const {
    const int64_t channel = panel * kWeightLanes, at = row * config_.out + channel;
    const Clamp clamp = clamp_of(config_.activation);
    const WeightTileArgs args{.x = x + row * config_.in,
                              .x_stride = config_.in,
                              .rows = std::min(kRowBlock, rows - row),
                              .codes = codes_.data() + panel * panel_bytes_,
                              .scale = scale_.as<float>() + panel * groups_ * kWeightLanes,
                              .zero = zero_.as<float>() + panel * groups_ * kWeightLanes,
                              .in = config_.in,
                              .group = config_.group,
                              .bias = bias_.as<float>() + channel,
                              .residual = residual == nullptr ? nullptr : residual + at,
                              .y = y + at,
                              .y_stride = config_.out,
                              .channels = std::min(kWeightLanes, config_.out - channel),
                              .lo = clamp.low,
                              .hi = clamp.high,
                              .curve = curve_of(config_.activation)};
    tile_(args);
  }

  WeightLinearConfig config_;
  Isa isa_;
  WeightTileFn tile_;
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
