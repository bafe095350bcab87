// The convolution driver for the AMX kernels: the order of the reduction, and what a task needs. Compiled
// for any x86-64 machine.
#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/kernels/conv/amx_kernel.h"
#include "ulp/kernels/conv/conv_tasks.h"
#include "ulp/kernels/conv/conv_variants.h"

namespace ulp::kernels {
namespace {

constexpr double kSpeed = 8;  // of products, compared with those of the tile kernels
constexpr int64_t kWeightTileBytes = kAmxLanes * kAmxKBytes;
constexpr int64_t kChunkUnits = 4;  // 16 bytes: a tap starts on such a boundary of the packed reduction

TapLayout amx_layout(const ConvShape& shape, int unit) {
  TapLayout layout = tap_layout(shape, unit);
  layout.units = round_up(layout.units, kChunkUnits);
  return layout;
}

class AmxConv final : public Conv {
 public:
  AmxConv(const ConvConfig& config, const ConvWeights& weights, const AmxKernels& kernels)
      : shape_(config.shape),
        integer_(config.input == DataType::u8),
        name_(std::string("conv_") + (integer_ ? kernels.name_u8 : kernels.name_bf16)),
        kernel_(integer_ ? kernels.u8 : kernels.bf16),
        layout_(amx_layout(config.shape, unit())),
        has_residual_(config.residual),
        residual_bytes_(element_bytes(config.residual_type)),
        output_bytes_(element_bytes(config.output)),
        tasks_(config.shape,
               Staging(config, config.input, nullptr, layout_.length % (4 * unit()) != 0, false), kAmxPixels,
               kAmxPixels) {
    panels_ = ceil_div(shape_.out_channels / shape_.groups, kAmxLanes);
    k_tiles_ = ceil_div(layout_.count * layout_.units * 4, kAmxKBytes);
    finish_ = make_finish(config, weights, shape_.out_channels + 2 * kAmxLanes, integer_);
    packed_ = pack_panels(config, weights, layout_, unit(), kAmxLanes,
                          integer_ ? DataType::i8 : DataType::bf16, k_tiles_ * kAmxKBytes / 4);
    make_chunks();
  }

  size_t workspace_bytes(int64_t, int workers) const override {
    return static_cast<size_t>(workers * (tasks_.stage_bytes() + packed_bytes() + sums_bytes()));
  }

  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    if (batch < 1) return;
    const WorkSplit work = tasks_.split(batch, panels_, shape_.groups * panels_ * k_tiles_ * kWeightTileBytes,
                                        kSpeed, parallel.workers());
    const int64_t each = tasks_.stage_bytes() + packed_bytes() + sums_bytes();
    parallel.run(work.tasks(), [&](int64_t i, int worker) {
      run_task(work.task(i), work.parts, x, has_residual_ ? static_cast<const uint8_t*>(residual) : nullptr,
               static_cast<uint8_t*>(y), static_cast<uint8_t*>(workspace) + worker * each);
    });
  }

  std::string name() const override { return name_; }

 private:
  int unit() const { return integer_ ? 4 : 2; }
  int64_t packed_bytes() const { return kAmxPixels * kAmxKBytes * std::min(k_tiles_, kAmxKBlock); }
  int64_t sums_bytes() const { return 4096 * (k_tiles_ <= kAmxKBlock ? 1 : ceil_div(panels_, 2)); }

  /// Where each piece of the packed reduction comes from, in the largest pieces that no tap and no tile
  /// splits.
  void make_chunks() {
    const int64_t tap_bytes = layout_.units * 4;
    chunk_bytes_ = tap_bytes % 64 == 0 ? 64 : tap_bytes % 32 == 0 ? 32 : 16;
    const int64_t count = k_tiles_ * kAmxKBytes / chunk_bytes_;
    chunks_ = AlignedBuffer(count * 8);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = i * chunk_bytes_, tap = at / tap_bytes;
      const int64_t kh = tap / layout_.per_row, kw = tap % layout_.per_row;
      chunks_.as<int64_t>()[i] =
          tap >= layout_.count ? -1
                               : kh * shape_.dilation_h * tasks_.staging().row_bytes() +
                                     kw * shape_.dilation_w * tasks_.staging().pixel_bytes() + at % tap_bytes;
    }
  }

  void run_task(const WorkSplit::Task& task, int64_t parts, const void* x, const uint8_t* residual,
                uint8_t* y, uint8_t* buffer) const {
    const PixelRows rows = tasks_.stage(x, task, buffer);
    const PanelRange range = panels_of_part(panels_, task.part, parts);
    const int64_t width = shape_.out_channels / shape_.groups;
    AmxArgs args{};
    args.a_step = shape_.stride_w * tasks_.staging().pixel_bytes();
    args.row_step = rows.row_step;
    args.out_w = rows.pixels;
    args.pixels = rows.rows * rows.pixels;
    args.chunks = chunks_.as<int64_t>();
    args.chunk_bytes = chunk_bytes_;
    args.k_tiles = k_tiles_;
    args.b_panel = k_tiles_ * kWeightTileBytes;
    args.panels = range.end - range.begin;
    args.finish = &finish_.finish;
    args.y_step = shape_.out_channels;
    args.y_bytes = output_bytes_;
    args.residual_bytes = residual_bytes_;
    args.packed = buffer + tasks_.stage_bytes();
    args.sums = args.packed + packed_bytes();
    for (int64_t g = 0; g < shape_.groups; ++g) {
      args.a = rows.a + g * (shape_.in_channels / shape_.groups) * tasks_.staging().element_bytes();
      args.b = packed_.data() + (g * panels_ + range.begin) * args.b_panel;
      args.channel = g * width + range.begin * kAmxLanes;
      args.channels = width - range.begin * kAmxLanes;
      const int64_t at = rows.first_pixel * shape_.out_channels + args.channel;
      args.y = y + at * output_bytes_;
      args.residual = residual == nullptr ? nullptr : residual + at * residual_bytes_;
      kernel_(args);
    }
  }

  ConvShape shape_;
  bool integer_;
  std::string name_;
  void (*kernel_)(const AmxArgs&);
  TapLayout layout_;
  bool has_residual_;
  int64_t residual_bytes_, output_bytes_;
  ConvTasks tasks_;
  int64_t panels_ = 0, k_tiles_ = 0, chunk_bytes_ = 16;
  FinishData finish_;
  AlignedBuffer packed_, chunks_;
};

}  // namespace

void amx_undefined(const char* why) {
  fail("kernels.amx_emulated", "expected a valid tile instruction, got a ", why);
}

std::unique_ptr<Conv> make_amx_conv(const ConvConfig& config, const ConvWeights& weights,
                                    const AmxKernels& kernels) {
  if (config.input == DataType::f32 || is_depthwise(config.shape)) return nullptr;
  // A piece of 16 bytes must not take in a neighbour's bf16: infinity times a weight of zero is NaN.
  if (config.input == DataType::bf16 && tap_layout(config.shape, 2).length % 8 != 0) return nullptr;
  return std::make_unique<AmxConv>(config, weights, kernels);
}

}  // namespace ulp::kernels
