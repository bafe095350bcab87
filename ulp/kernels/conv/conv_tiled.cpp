// The convolution driver for the register-tile kernels: staging, cutting into tiles, threads. Compiled for
// any machine.
#include <algorithm>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/conv/staging.h"
#include "ulp/kernels/conv/work_split.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kStageBytes = 128 << 10;  // staged input of a task: stays in the second-level cache

class TiledConv final : public Conv {
 public:
  TiledConv(const ConvConfig& config, const ConvWeights& weights, const TileKernels& kernels)
      : shape_(config.shape),
        kernels_(kernels),
        layout_(tap_layout(config.shape, kernels.unit)),
        flat_(is_flat(config.shape)),
        has_residual_(config.residual),
        residual_bytes_(element_bytes(config.residual_type)),
        output_bytes_(element_bytes(config.output)),
        staging_(config, kernels.stage, kernels.copy, layout_.length % kernels.unit != 0) {
    const int64_t width = shape_.out_channels / shape_.groups;
    panels_ = ceil_div(width, kernels.lanes);
    panel_bytes_ = layout_.count * layout_.units * kernels.lanes * 4;
    // A panel of a group may reach into the channels behind it; the last one needs them to exist.
    finish_ = make_finish(config, weights, shape_.out_channels + kernels.lanes, config.input == Element::u8);
    packed_ = pack_panels(config, weights, layout_, kernels.unit, kernels.lanes, element_of(kernels.stage));
    offsets_ = AlignedBuffer(layout_.count * 8);
    for (int64_t t = 0; t < layout_.count; ++t) {
      const int64_t kh = t / layout_.per_row, kw = t % layout_.per_row;
      offsets_.as<int64_t>()[t] =
          kh * shape_.dilation_h * staging_.row_bytes() + kw * shape_.dilation_w * staging_.pixel_bytes();
    }
    cache_rows_ = cache_rows();
  }

  size_t workspace_bytes(int64_t, int workers) const override {
    return static_cast<size_t>(workers * stage_bytes());
  }

  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    if (batch < 1) return;
    const WorkSplit work = split(batch, parallel.workers());
    parallel.run(work.tasks(), [&](int64_t i, int worker) {
      const WorkSplit::Task task = work.task(i);
      uint8_t* buffer = static_cast<uint8_t*>(workspace) + worker * stage_bytes();
      run_task(task, work.parts, x, has_residual_ ? static_cast<const uint8_t*>(residual) : nullptr,
               static_cast<uint8_t*>(y), buffer);
    });
  }

  std::string name() const override { return std::string("conv_") + kernels_.name; }

 private:
  int64_t stage_bytes() const {
    return flat_ ? staging_.bytes_for_pixels(cache_rows_) : staging_.bytes_for_rows(cache_rows_);
  }

  int64_t cache_rows() const {
    if (flat_)
      return std::max<int64_t>(1, kStageBytes / (staging_.pixel_bytes() * kMaxTilePixels)) * kMaxTilePixels;
    const int64_t one = std::min(shape_.stride_h, shape_.in_h) * staging_.row_bytes();
    return std::clamp<int64_t>(kStageBytes / one, 1, shape_.out_h());
  }

  WorkSplit split(int64_t batch, int workers) const {
    const int64_t pixels = batch * shape_.out_h() * shape_.out_w();
    const int64_t depth = shape_.in_channels / shape_.groups * shape_.kernel_h * shape_.kernel_w;
    const int64_t input = batch * shape_.in_h * shape_.in_w * staging_.pixel_bytes();
    const bool weights_larger = shape_.groups * panels_ * panel_bytes_ > input;
    const int64_t parts = shape_.groups == 1 ? ceil_div(panels_, 2) : 1;
    return split_work(flat_ ? 1 : batch, flat_ ? pixels : shape_.out_h(), cache_rows_,
                      flat_ ? kMaxTilePixels : 1, parts,
                      static_cast<double>(pixels) * static_cast<double>(depth * shape_.out_channels),
                      weights_larger, workers);
  }

  /// One row of output pixels that are a_step apart; filled in once a task.
  struct Row {
    const uint8_t* a;
    int64_t first_pixel;  // in the output tensor
    int64_t pixels;
  };

  void run_task(const WorkSplit::Task& task, int64_t parts, const void* x, const uint8_t* residual,
                uint8_t* y, uint8_t* buffer) const {
    const uint8_t* start = flat_ ? staging_.pixels(x, task.first, task.end, buffer)
                                 : staging_.rows(x, task.image, task.first, task.end, buffer);
    const int64_t out_w = shape_.out_w(), width = shape_.out_channels / shape_.groups;
    const int64_t group_bytes = shape_.in_channels / shape_.groups * staging_.element_bytes();
    const int64_t pairs = ceil_div(panels_, 2);  // parts are cut between pairs of panels
    const int64_t begin = 2 * (task.part * pairs / parts);
    const int64_t end = std::min(panels_, 2 * ((task.part + 1) * pairs / parts));
    TileArgs args{};
    args.a_step = shape_.stride_w * staging_.pixel_bytes();
    args.taps = offsets_.as<int64_t>();
    args.tap_count = layout_.count;
    args.tap_units = layout_.units;
    args.b_panel = panel_bytes_;
    args.finish = &finish_.finish;
    args.y_step = shape_.out_channels;
    for (int64_t g = 0; g < shape_.groups; ++g) {
      for (int64_t panel = begin; panel < end;) {
        const int log2 = panel_choice(end - panel, flat_ ? task.end - task.first : out_w);
        args.b = packed_.data() + (g * panels_ + panel) * panel_bytes_;
        args.channel = g * width + panel * kernels_.lanes;
        args.channels = width - panel * kernels_.lanes;
        if (flat_) {
          run_row({start + g * group_bytes, task.first, task.end - task.first}, log2, residual, y, args);
        } else {
          for (int64_t oh = task.first; oh < task.end; ++oh) {
            const uint8_t* a =
                start + g * group_bytes + (oh - task.first) * shape_.stride_h * staging_.row_bytes();
            run_row({a, (task.image * shape_.out_h() + oh) * out_w, out_w}, log2, residual, y, args);
          }
        }
        panel += 1 << log2;
      }
    }
  }

  int panel_choice(int64_t left, int64_t pixels) const {
    if (left >= 4 && pixels <= kernels_.max_pixels[2]) return 2;
    return left >= 2 && kernels_.max_pixels[1] > 0 ? 1 : 0;
  }

  /// Cuts a row into tiles of nearly equal width.
  void run_row(const Row& row, int log2, const uint8_t* residual, uint8_t* y, TileArgs& args) const {
    const int64_t tiles = ceil_div(row.pixels, kernels_.max_pixels[log2]);
    const int64_t base = row.pixels / tiles, wider = row.pixels % tiles;
    int64_t pixel = 0;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t count = base + (i < wider);
      const int64_t at = (row.first_pixel + pixel) * shape_.out_channels + args.channel;
      args.a = row.a + pixel * args.a_step;
      args.y = y + at * output_bytes_;
      args.residual = residual == nullptr ? nullptr : residual + at * residual_bytes_;
      kernels_.tile[log2][count](args);
      pixel += count;
    }
  }

  ConvShape shape_;
  const TileKernels& kernels_;
  TapLayout layout_;
  bool flat_, has_residual_;
  int64_t residual_bytes_, output_bytes_;
  Staging staging_;
  int64_t panels_ = 0, panel_bytes_ = 0, cache_rows_ = 1;
  FinishData finish_;
  AlignedBuffer packed_, offsets_;
};

}  // namespace

std::unique_ptr<Conv> make_tiled_conv(const ConvConfig& config, const ConvWeights& weights,
                                      const TileKernels& kernels) {
  // A bf16 pair must not take in a neighbour: infinity times a weight of zero is NaN.
  if (kernels.stage == Stage::bf16 && tap_layout(config.shape, 1).length % kernels.unit != 0) return nullptr;
  return std::make_unique<TiledConv>(config, weights, kernels);
}

}  // namespace ulp::kernels
