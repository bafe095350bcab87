#include "ulp/kernels/linear/weight_linear.h"

#include <algorithm>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/kernels/common/aligned_buffer.h"
#include "ulp/kernels/common/clamp.h"
#include "ulp/kernels/conv/tile_panels.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/linear/weight_inputs.h"
#include "ulp/kernels/linear/weight_tile.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kDenseRows = 6;           // from here on a block of weights is unpacked once
constexpr int64_t kDenseChannels = 32;      // of such a block; a multiple of every panel's width
constexpr int64_t kRowBlock = 56;           // of a task on plain loops, which take any number of rows
constexpr int64_t kFewRowsChannels = 64;    // of a task with fewer rows
constexpr int64_t kLongestGroup = 1 << 20;  // of 4 bits: sums of digits times codes stay below 2^31

/// Kernels of an instruction set; `dense` where weights are unpacked for it.
struct Kernels {
  const WeightTiles* coded;
  WeightTile tile4;
  const TileKernels* dense;
};

constexpr Variant<Kernels> kTables[] = {
    {Isa::avx512_vnni, ULP_ON_X86({&kWeightTilesAvx512, digit_tile_avx512_vnni, &kTilesF32Avx512})},
    {Isa::avx512, ULP_ON_X86({&kWeightTilesAvx512, digit_tile_avx512, &kTilesF32Avx512})},
    {Isa::avx2, ULP_ON_X86({&kWeightTilesAvx2, digit_tile_avx2, &kTilesF32Avx2})},
    {Isa::neon_dotprod, ULP_ON_ARM({&kWeightTilesNeon, digit_tile_neon_dotprod, &kTilesF32Neon})},
    {Isa::neon, ULP_ON_ARM({&kWeightTilesNeon, digit_tile_neon, &kTilesF32Neon})},
    {Isa::portable, {&kWeightTilesPortable, digit_tile_portable, nullptr}}};

class PanelWeightLinear final : public WeightLinear {
 public:
  PanelWeightLinear(const WeightLinearConfig& config, const WeightLinearWeights& weights, Isa isa)
      : config_(config),
        isa_(isa),
        kernels_(first_admitted(kTables, isa)),
        groups_(ceil_div(config.in, config.group)),
        panels_(ceil_div(config.out, kWeightLanes)),
        panel_bytes_(kWeightLanes * (config.bits == 4 ? 4 * groups_ * words_of_group() : config.in)),
        has_zero_(weights.zero != nullptr),
        has_minimum_(weights.minimum != nullptr),
        codes_(panels_ * panel_bytes_),
        scale_(panels_ * groups_ * kWeightLanes * 4),
        zero_(has_zero_ ? panels_ * groups_ * kWeightLanes * 4 : 0),
        minimum_(has_minimum_ ? panels_ * groups_ * kWeightLanes * 4 : 0),
        bias_(round_up(panels_ * kWeightLanes, kDenseChannels) * 4) {
    for (int64_t c = 0; c < config.out; ++c) pack_channel(weights, c);
    const Clamp clamp = clamp_of(config.activation);
    finish_.lo = clamp.low;
    finish_.hi = clamp.high;
    finish_.curve = curve_of(config.activation);
    finish_.bias = bias_.data();
  }

  size_t workspace_bytes(int64_t rows, int workers) const override {
    const int64_t few = kernels_.dense == nullptr ? rows : std::min(rows, kDenseRows - 1);
    const int64_t dense = is_dense(rows) ? workers * block_floats() : 0;
    return static_cast<size_t>(std::max(dense, input_floats(input_shape(), few))) * sizeof(float);
  }

  void run(int64_t rows, const float* x, const float* residual, float* y, void* workspace,
           const Parallel& parallel) const override {
    const Rows all{x, config_.residual ? residual : nullptr, y};
    if (is_dense(rows)) return run_dense(rows, all, static_cast<float*>(workspace), parallel);
    const WeightInputs inputs = lay_inputs(input_shape(), rows, x, static_cast<float*>(workspace));
    const int64_t across = ceil_div(config_.out, kFewRowsChannels);
    parallel.run(across * ceil_div(rows, kRowBlock), [&](int64_t task, int) {
      const int64_t first = task / across * kRowBlock, at = first * config_.out;
      const Rows some{x, all.residual == nullptr ? nullptr : all.residual + at, y + at};
      WeightTileArgs args = tile_args(task % across * kFewRowsChannels, kFewRowsChannels, some);
      args.rows = std::min(kRowBlock, rows - first);
      args.x_stride = inputs.stride;
      args.x_group = inputs.group_stride;
      if (inputs.digits == nullptr) {
        args.x = inputs.x + first * inputs.stride;
      } else {
        args.digits = inputs.digits + first * inputs.stride;
        args.starts = inputs.starts + first * groups_;
      }
      if (inputs.negative_sums != nullptr) args.negative_sums = inputs.negative_sums + first * groups_;
      config_.bits == 4 ? kernels_.tile4(args) : kernels_.coded->tile8(args);
    });
  }

  std::string name() const override {
    return "weight" + std::to_string(config_.bits) + "_" + to_string(isa_);
  }

 private:
  int64_t words_of_group() const { return ceil_div(config_.group, kCodesOfWord); }
  bool is_dense(int64_t rows) const { return kernels_.dense != nullptr && rows >= kDenseRows; }

  void pack_channel(const WeightLinearWeights& weights, int64_t c) {
    const int64_t panel = c / kWeightLanes, lane = c % kWeightLanes;
    uint8_t* panel_codes = codes_.data() + panel * panel_bytes_;
    const auto* codes = static_cast<const uint8_t*>(weights.codes);
    if (config_.bits == 4) {
      pack_nibbles(codes + c * groups_ * (config_.group / 2), panel_codes + lane * 4);
    } else {
      const uint8_t* from = codes + c * groups_ * config_.group;
      for (int64_t k = 0; k < config_.in; ++k) panel_codes[k * kWeightLanes + lane] = from[k];
    }
    for (int64_t g = 0; g < groups_; ++g) {
      const int64_t at = (panel * groups_ + g) * kWeightLanes + lane;
      scale_.as<float>()[at] = weights.scale[c * groups_ + g];
      if (has_minimum_) minimum_.as<float>()[at] = weights.minimum[c * groups_ + g];
      if (!has_zero_) continue;
      const int middle = config_.bits == 4 ? 8 : 0;
      zero_.as<float>()[at] = static_cast<float>(weights.zero[c * groups_ + g] - middle);
    }
    if (weights.bias != nullptr) bias_.as<float>()[c] = weights.bias[c];
  }

  /// Pairs of a channel -> words of its lane; a group begins with a word of its own.
  void pack_nibbles(const uint8_t* from, uint8_t* to) const {
    for (int64_t g = 0; g < groups_; ++g) {
      for (int64_t w = 0; w < words_of_group(); ++w) {
        uint32_t word = 0;
        const int64_t first = w * (kCodesOfWord / 2);
        std::memcpy(&word, from + g * (config_.group / 2) + first,
                    static_cast<size_t>(std::min<int64_t>(4, config_.group / 2 - first)));
        std::memcpy(to + (g * words_of_group() + w) * kWeightLanes * 4, &word, 4);
      }
    }
  }

  /// What a run reads and writes, from its first row on.
  struct Rows {
    const float* x;
    const float* residual;  ///< or null
    float* y;
  };

  WeightInputShape input_shape() const {
    return {config_.in, config_.group, groups_, config_.bits, has_zero_, has_minimum_};
  }

  /// All but the inputs. `channel`: the first one, that of a panel.
  WeightTileArgs tile_args(int64_t channel, int64_t channels, const Rows& all) const {
    const int64_t panel = channel / kWeightLanes, scales = panel * groups_ * kWeightLanes;
    return {.codes = codes_.data() + panel * panel_bytes_,
            .panel_bytes = panel_bytes_,
            .scale = scale_.as<float>() + scales,
            .zero = has_zero_ ? zero_.as<float>() + scales : nullptr,
            .minimum = has_minimum_ ? minimum_.as<float>() + scales : nullptr,
            .in = config_.in,
            .group = config_.group,
            .groups = groups_,
            .finish = &finish_,
            .channel = channel,
            .channels = std::min(channels, config_.out - channel),
            .y = all.y + channel,
            .residual = all.residual == nullptr ? nullptr : all.residual + channel,
            .y_stride = config_.out};
  }

  /// Of unpacked weights, [panel][in][lane].
  int64_t block_floats() const { return config_.in * kDenseChannels; }

  void run_dense(int64_t rows, const Rows& all, float* workspace, const Parallel& parallel) const {
    const int64_t blocks = ceil_div(config_.out, kDenseChannels);
    // Few channels: the rows are shared out, too.
    const int64_t parts =
        std::clamp(ceil_div(2 * parallel.workers(), blocks), int64_t{1}, ceil_div(rows, kMaxTilePixels));
    parallel.run(blocks * parts, [&](int64_t task, int worker) {
      const int64_t part = task % parts, first = part * rows / parts;
      float* weights = workspace + worker * block_floats();
      run_block(task / parts * kDenseChannels, first, (part + 1) * rows / parts - first, all, weights);
    });
  }

  void run_block(int64_t channel, int64_t first, int64_t rows, const Rows& all, float* weights) const {
    const WeightTileArgs coded = tile_args(channel, kDenseChannels, all);
    (config_.bits == 4 ? kernels_.coded->unpack4 : kernels_.coded->unpack8)(coded, weights);
    const TilePanels panels(coded.channels, config_.in, reinterpret_cast<const uint8_t*>(weights),
                            *kernels_.dense);
    const TileOutput output{.y = reinterpret_cast<uint8_t*>(coded.y),
                            .y_bytes = sizeof(float),
                            .residual = reinterpret_cast<const uint8_t*>(coded.residual),
                            .residual_bytes = sizeof(float),
                            .y_step = config_.out};
    Finish finish = finish_;
    finish.bias = bias_.as<float>() + channel;
    const int64_t no_offset = 0;
    TileArgs args{};
    args.a_step = config_.in * static_cast<int64_t>(sizeof(float));
    args.taps = &no_offset;
    args.finish = &finish;
    const auto* x = reinterpret_cast<const uint8_t*>(all.x + first * config_.in);
    panels.run({.a = x, .row_step = 0, .first_pixel = first, .rows = 1, .pixels = rows}, output, 0, 0, 1,
               args);
  }

  WeightLinearConfig config_;
  Isa isa_;
  Kernels kernels_;
  int64_t groups_, panels_, panel_bytes_;
  bool has_zero_, has_minimum_;
  AlignedBuffer codes_, scale_, zero_, minimum_, bias_;
  Finish finish_;
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
  if (config.bits == 4 && std::min(config.group, config.in) > kLongestGroup) {
    fail(kWhere, "expected groups of up to ", kLongestGroup, " 4-bit codes, got ", config.group);
  }
  if (weights.codes == nullptr || weights.scale == nullptr) fail(kWhere, "expected codes and scales");
  if (weights.minimum != nullptr && (config.bits != 4 || weights.zero != nullptr)) {
    fail(kWhere, "expected minima with 4 bits and without zero points, got ", config.bits, " bits",
         weights.zero != nullptr ? " and zero points" : "");
  }
  return std::make_unique<PanelWeightLinear>(config, weights, isa);
}

}  // namespace ulp::kernels
