// The driver of Winograd's convolution for 8-bit 3x3 layers. Sums are whole numbers in every form, so that
// results have the bits of the direct way. Compiled for any machine.
#include <algorithm>
#include <cstring>

#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/conv/winograd_kernel.h"
#include "ulp/kernels/conv/work_split.h"
#include "ulp/kernels/isa/cpu.h"

namespace ulp::kernels {
namespace {

/// Three weights in a row or a column -> four positions: g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2 and g2,
/// all times two, to stay whole.
void to_positions(const int32_t* g, int64_t step, int32_t* to, int64_t to_step) {
  const int32_t outer = g[0] + g[2 * step], middle = g[step];
  to[0] = 2 * g[0];
  to[to_step] = outer + middle;
  to[2 * to_step] = outer - middle;
  to[3 * to_step] = 2 * g[2 * step];
}

/// The weights of a channel pair at all positions, at most 9 * 128 in magnitude.
void transform_weights(const int8_t* weights, int32_t (&positions)[kWinogradPositions]) {
  int32_t g[9], across[12];
  std::copy_n(weights, 9, g);
  for (int row = 0; row < 3; ++row) to_positions(g + 3 * row, 1, across + 4 * row, 1);
  for (int column = 0; column < 4; ++column) to_positions(across + column, 4, positions + column, 4);
}

constexpr int kMostLanes = 8;

/// Patches whose positions and sums leave a part of the second-level cache for weights.
int64_t patches_in_cache(int64_t channels, int64_t block) {
  const int64_t patch = kWinogradPositions * (channels * 2 + block * 4);
  return std::max<int64_t>(kWinogradPixels, second_level_cache() * 5 / 8 / patch);
}

class WinogradConv final : public Conv {
 public:
  WinogradConv(const ConvConfig& config, const ConvWeights& weights, const WinogradKernels& kernels)
      : shape_(config.shape),
        kernels_(kernels),
        has_residual_(config.residual),
        residual_bytes_(element_bytes(config.residual_type)),
        output_bytes_(element_bytes(config.output)),
        across_(ceil_div(shape_.out_w(), 2)),
        down_(ceil_div(shape_.out_h(), 2)),
        block_(2 * kernels.lanes),
        blocks_(ceil_div(shape_.out_channels, block_)),
        most_patches_(patches_in_cache(shape_.in_channels, block_)),
        finish_(make_finish(config, weights, blocks_ * block_, true)),
        weights_(blocks_ * kWinogradPositions * position_bytes()),
        padding_(shape_.in_channels) {
    std::fill_n(padding_.data(), shape_.in_channels, static_cast<uint8_t>(config.input_q.zero_point));
    pack(weights.i8);
  }

  size_t workspace_bytes(int64_t, int workers) const override {
    return static_cast<size_t>(workers * (patch_bytes() + sum_bytes()));
  }

  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    if (batch < 1) return;
    const WorkSplit work = split(batch, parallel.workers());
    parallel.run(work.tasks(), [&](int64_t i, int worker) {
      const WorkSplit::Task task = work.task(i);
      uint8_t* own = static_cast<uint8_t*>(workspace) + worker * (patch_bytes() + sum_bytes());
      auto* patches = reinterpret_cast<int16_t*>(own);
      auto* sums = reinterpret_cast<int32_t*>(own + patch_bytes());
      transform_input(static_cast<const uint8_t*>(x), task, patches);
      const PanelRange range = panels_of_part(2 * blocks_, task.part, work.parts);
      for (int64_t block = range.begin / 2; block < range.end / 2; ++block) {
        multiply(block, task.end - task.first, patches, sums);
        finish(block, task, sums, static_cast<const uint8_t*>(residual), static_cast<uint8_t*>(y));
      }
    });
  }

  std::string name() const override { return std::string("conv_") + kernels_.name; }
  Density density(int64_t) const override {
    const int64_t pixels = shape_.out_h() * shape_.out_w();
    return {static_cast<double>(kWinogradPositions * across_ * down_) / static_cast<double>(9 * pixels), 1};
  }

 private:
  /// Where a patch belongs: its first result.
  struct Place {
    int64_t image, row, column;
  };
  Place place(int64_t patch) const {
    return {patch / (across_ * down_), patch / across_ % down_ * 2, patch % across_ * 2};
  }
  void next(Place& at) const {
    if ((at.column += 2) < 2 * across_) return;
    at.column = 0;
    if ((at.row += 2) < 2 * down_) return;
    at.row = 0;
    ++at.image;
  }

  /// Weights of a block at a position.
  int64_t position_bytes() const { return shape_.in_channels * block_ * 2; }
  /// Elements from position to position; a line more, or they share few lines of the first-level cache.
  int64_t patch_step() const { return most_patches_ * shape_.in_channels + 32; }
  int64_t sum_step() const { return most_patches_ * block_ + 16; }
  int64_t patch_bytes() const { return kWinogradPositions * patch_step() * 2; }
  int64_t sum_bytes() const { return kWinogradPositions * sum_step() * 4; }

  WorkSplit split(int64_t batch, int workers) const {
    const int64_t patches = batch * down_ * across_;
    const int64_t depth = kWinogradPositions * shape_.in_channels;
    return split_work(
        {.images = 1,
         .rows = patches,
         .cache_rows = most_patches_,
         .grain = 1,
         .pairs = blocks_,
         .macs = static_cast<double>(patches) * static_cast<double>(depth * shape_.out_channels),
         .weight_bytes = blocks_ * kWinogradPositions * position_bytes(),
         .input_bytes = patches * depth * 2},
        workers);
  }

  /// [block][position][2 panels][unit][lane][2]
  void pack(const int8_t* weights) {
    const int64_t depth = shape_.in_channels, lanes = kernels_.lanes,
                  panels = ceil_div(shape_.out_channels, lanes);
    for (int64_t panel = 0; panel < panels; ++panel) {
      uint8_t* to = weights_.data() + panel / 2 * kWinogradPositions * position_bytes() +
                    panel % 2 * position_bytes() / 2;
      for (int64_t i = 0; i < depth; i += 2, to += lanes * 4) pack_unit(weights + i * 9, panel * lanes, to);
    }
  }

  /// Two input channels of a panel at all positions. `weights`: those of the first output channel.
  void pack_unit(const int8_t* weights, int64_t first, uint8_t* to) {
    const int64_t channel = shape_.in_channels * 9,
                  lanes = std::min<int64_t>(kernels_.lanes, shape_.out_channels - first);
    int16_t unit[kWinogradPositions][kMostLanes * 2] = {};
    for (int64_t i = 0; i < 2 * lanes; ++i) {
      int32_t positions[kWinogradPositions];
      transform_weights(weights + (first + i / 2) * channel + i % 2 * 9, positions);
      for (int64_t p = 0; p < kWinogradPositions; ++p) unit[p][i] = static_cast<int16_t>(positions[p]);
    }
    for (int64_t p = 0; p < kWinogradPositions; ++p)
      std::memcpy(to + p * position_bytes(), unit[p], static_cast<size_t>(kernels_.lanes) * 4);
  }

  void transform_input(const uint8_t* x, const WorkSplit::Task& task, int16_t* to) const {
    const auto inside = [](int64_t i, int64_t size) {
      return static_cast<uint64_t>(i) < static_cast<uint64_t>(size);
    };
    WinogradPatch args{{}, shape_.in_channels, to, patch_step()};
    Place at = place(task.first);
    for (int64_t patch = task.first; patch < task.end; ++patch, next(at)) {
      const int64_t top = at.row - shape_.pad_h, left = at.column - shape_.pad_w;
      for (int64_t r = 0; r < 4; ++r) {
        const bool row = inside(top + r, shape_.in_h);
        const int64_t pixel = (at.image * shape_.in_h + top + r) * shape_.in_w + left;
        for (int64_t s = 0; s < 4; ++s) {
          const bool known = row && inside(left + s, shape_.in_w);
          args.pixels[4 * r + s] = known ? x + (pixel + s) * shape_.in_channels : padding_.data();
        }
      }
      kernels_.transform_input(args);
      args.to += shape_.in_channels;
    }
  }

  void multiply(int64_t block, int64_t count, const int16_t* patches, int32_t* sums) const {
    TileArgs args{};
    const int64_t none = 0, tiles = ceil_div(count, kWinogradPixels);
    args.a_step = shape_.in_channels * 2;
    args.taps = &none;
    args.tap_count = 1;
    args.tap_units = shape_.in_channels / 2;
    args.b_panel = position_bytes() / 2;
    args.y_step = block_;
    args.b = weights_.data() + block * kWinogradPositions * position_bytes();
    for (int64_t p = 0; p < kWinogradPositions; ++p, args.b += position_bytes()) {
      args.ahead = args.b + position_bytes();
      for (int64_t i = 0; i < tiles; ++i) {
        const int64_t first = i * count / tiles, end = (i + 1) * count / tiles;
        args.a = reinterpret_cast<const uint8_t*>(patches + p * patch_step() + first * shape_.in_channels);
        args.y = sums + p * sum_step() + first * block_;
        kernels_.multiply[end - first](args);
        args.ahead += bytes_ahead(1, args.tap_units);
      }
    }
  }

  void finish(int64_t block, const WorkSplit::Task& task, const int32_t* sums, const uint8_t* residual,
              uint8_t* y) const {
    WinogradSquare square{};
    square.position = sum_step();
    for (TileArgs& row : square.row) {
      row.finish = &finish_.finish;
      row.channel = block * block_;
      row.channels = shape_.out_channels - row.channel;
      row.y_step = shape_.out_channels;
    }
    Place at = place(task.first);
    for (int64_t patch = task.first; patch < task.end; ++patch, next(at)) {
      square.sums = sums + (patch - task.first) * block_;
      square.rows = std::min<int64_t>(2, shape_.out_h() - at.row);
      square.columns = std::min<int64_t>(2, shape_.out_w() - at.column);
      for (int64_t r = 0; r < square.rows; ++r) {
        const int64_t pixel = (at.image * shape_.out_h() + at.row + r) * shape_.out_w() + at.column;
        const int64_t element = pixel * shape_.out_channels + square.row[r].channel;
        square.row[r].y = y + element * output_bytes_;
        square.row[r].residual = has_residual_ ? residual + element * residual_bytes_ : nullptr;
      }
      kernels_.finish_output(square);
    }
  }

  ConvShape shape_;
  const WinogradKernels& kernels_;
  bool has_residual_;
  int64_t residual_bytes_, output_bytes_;
  int64_t across_, down_;   // patches of an image
  int64_t block_, blocks_;  // output channels of two panels
  int64_t most_patches_;    // of a task
  FinishData finish_;
  AlignedBuffer weights_;
  AlignedBuffer padding_;  // a pixel
};

/// 3x3 layers without steps, whose sums, times four, fit into 32 bits (at most 1,827 channels).
bool takes(const ConvConfig& config) {
  const ConvShape& s = config.shape;
  constexpr int64_t kMostChannels = 1024;
  return config.input == DataType::u8 && s.kernel_h == 3 && s.kernel_w == 3 && s.stride_h == 1 &&
         s.stride_w == 1 && s.dilation_h == 1 && s.dilation_w == 1 && s.groups == 1 &&
         s.in_channels % 16 == 0 && s.in_channels <= kMostChannels;
}

/// Few channels do not pay for the transforms, and few patches not for weights in 3.6 times the bytes. Larger weights than
/// these would make ResNet-50 resident in more than 1.3 times its weights and arena.
bool pays(const ConvShape& s) {
  constexpr int64_t kFewestChannels = 64, kFewestPatches = 32, kMostBytes = 1 << 20;
  return std::min(s.in_channels, s.out_channels) >= kFewestChannels &&
         s.in_channels * s.out_channels * kWinogradPositions * int64_t{sizeof(int16_t)} <= kMostBytes &&
         ceil_div(s.out_h(), 2) * ceil_div(s.out_w(), 2) >= kFewestPatches;
}

}  // namespace

std::unique_ptr<Conv> make_winograd_conv(const ConvConfig& config, const ConvWeights& weights,
                                         const WinogradKernels& kernels) {
  if (!takes(config) || !pays(config.shape)) return nullptr;
  return std::make_unique<WinogradConv>(config, weights, kernels);
}

}  // namespace ulp::kernels
