// The convolution driver for the AMX kernels: staging, the order of the reduction, threads. Compiled for any
// machine.
#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/kernels/conv/amx_kernel.h"
#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/conv/staging.h"
#include "ulp/kernels/conv/work_split.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kStageBytes = 128 << 10;
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
        integer_(config.input == Element::u8),
        name_(std::string("conv_") + (integer_ ? kernels.name_u8 : kernels.name_bf16)),
        kernel_(integer_ ? kernels.u8 : kernels.bf16),
        layout_(amx_layout(config.shape, unit())),
        flat_(is_flat(config.shape)),
        has_residual_(config.residual),
        residual_bytes_(element_bytes(config.residual_type)),
        output_bytes_(element_bytes(config.output)),
        staging_(config, integer_ ? Stage::u8 : Stage::bf16, nullptr, layout_.length % (4 * unit()) != 0) {
    panels_ = ceil_div(shape_.out_channels / shape_.groups, kAmxLanes);
    k_tiles_ = ceil_div(layout_.count * layout_.units * 4, kAmxKBytes);
    finish_ = make_finish(config, weights, shape_.out_channels + 2 * kAmxLanes, integer_);
    packed_ = pack_panels(config, weights, layout_, unit(), kAmxLanes,
                          integer_ ? PackedElement::i8 : PackedElement::bf16, k_tiles_ * kAmxKBytes / 4);
    make_chunks();
    const int64_t one = std::min(shape_.stride_h, shape_.in_h) * staging_.row_bytes();
    cache_rows_ = flat_
                      ? std::max<int64_t>(1, kStageBytes / (staging_.pixel_bytes() * kAmxPixels)) * kAmxPixels
                      : std::clamp<int64_t>(kStageBytes / one, 1, shape_.out_h());
  }

  size_t workspace_bytes(int64_t, int workers) const override {
    return static_cast<size_t>(workers * (stage_bytes() + packed_bytes() + sums_bytes()));
  }

  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    if (batch < 1) return;
    const WorkSplit work = split(batch, parallel.workers());
    const int64_t each = stage_bytes() + packed_bytes() + sums_bytes();
    parallel.run(work.tasks(), [&](int64_t i, int worker) {
      run_task(work.task(i), work.parts, x, has_residual_ ? static_cast<const uint8_t*>(residual) : nullptr,
               static_cast<uint8_t*>(y), static_cast<uint8_t*>(workspace) + worker * each);
    });
  }

  std::string name() const override { return name_; }

 private:
  int unit() const { return integer_ ? 4 : 2; }
  int64_t stage_bytes() const {
    return flat_ ? staging_.bytes_for_pixels(cache_rows_) : staging_.bytes_for_rows(cache_rows_);
  }
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
      chunks_.as<int64_t>()[i] = tap >= layout_.count
                                     ? -1
                                     : kh * shape_.dilation_h * staging_.row_bytes() +
                                           kw * shape_.dilation_w * staging_.pixel_bytes() + at % tap_bytes;
    }
  }

  WorkSplit split(int64_t batch, int workers) const {
    const int64_t pixels = batch * shape_.out_h() * shape_.out_w();
    const int64_t depth = shape_.in_channels / shape_.groups * shape_.kernel_h * shape_.kernel_w;
    const int64_t input = batch * shape_.in_h * shape_.in_w * staging_.pixel_bytes();
    const bool weights_larger = shape_.groups * panels_ * k_tiles_ * 1024 > input;
    const int64_t parts = shape_.groups == 1 ? ceil_div(panels_, 2) : 1;
    return split_work(flat_ ? 1 : batch, flat_ ? pixels : shape_.out_h(), cache_rows_, flat_ ? kAmxPixels : 1,
                      parts,
                      static_cast<double>(pixels) * static_cast<double>(depth * shape_.out_channels) / 8,
                      weights_larger, workers);
  }

  void run_task(const WorkSplit::Task& task, int64_t parts, const void* x, const uint8_t* residual,
                uint8_t* y, uint8_t* buffer) const {
    const uint8_t* start = flat_ ? staging_.pixels(x, task.first, task.end, buffer)
                                 : staging_.rows(x, task.image, task.first, task.end, buffer);
    const int64_t width = shape_.out_channels / shape_.groups, pairs = ceil_div(panels_, 2);
    const int64_t begin = 2 * (task.part * pairs / parts);
    const int64_t end = std::min(panels_, 2 * ((task.part + 1) * pairs / parts));
    const int64_t out_w = flat_ ? task.end - task.first : shape_.out_w();
    const int64_t first = flat_ ? task.first : (task.image * shape_.out_h() + task.first) * out_w;
    AmxArgs args{};
    args.a_step = shape_.stride_w * staging_.pixel_bytes();
    args.row_step = shape_.stride_h * staging_.row_bytes();
    args.out_w = out_w;
    args.pixels = flat_ ? out_w : (task.end - task.first) * out_w;
    args.chunks = chunks_.as<int64_t>();
    args.chunk_bytes = chunk_bytes_;
    args.k_tiles = k_tiles_;
    args.b_panel = k_tiles_ * 1024;
    args.panels = end - begin;
    args.finish = &finish_.finish;
    args.y_step = shape_.out_channels;
    args.y_bytes = output_bytes_;
    args.residual_bytes = residual_bytes_;
    args.packed = buffer + stage_bytes();
    args.sums = args.packed + packed_bytes();
    for (int64_t g = 0; g < shape_.groups; ++g) {
      args.a = start + g * (shape_.in_channels / shape_.groups) * staging_.element_bytes();
      args.b = packed_.data() + (g * panels_ + begin) * args.b_panel;
      args.channel = g * width + begin * kAmxLanes;
      args.channels = width - begin * kAmxLanes;
      const int64_t at = first * shape_.out_channels + args.channel;
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
  bool flat_, has_residual_;
  int64_t residual_bytes_, output_bytes_;
  Staging staging_;
  int64_t panels_ = 0, k_tiles_ = 0, cache_rows_ = 1, chunk_bytes_ = 16;
  FinishData finish_;
  AlignedBuffer packed_, chunks_;
};

}  // namespace

void amx_undefined(const char* why) {
  fail("kernels.amx_emulated", "expected a valid tile instruction, got a ", why);
}

std::unique_ptr<Conv> make_amx_conv(const ConvConfig& config, const ConvWeights& weights,
                                    const AmxKernels& kernels) {
  if (config.input == Element::f32) return nullptr;
  // A piece of 16 bytes must not take in a neighbour's bf16: infinity times a weight of zero is NaN.
  if (config.input == Element::bf16 && tap_layout(config.shape, 2).length % 8 != 0) return nullptr;
  return std::make_unique<AmxConv>(config, weights, kernels);
}

}  // namespace ulp::kernels
