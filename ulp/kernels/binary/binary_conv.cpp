// The driver of binary layers. Compiled for any machine.
#include "ulp/kernels/binary/binary_conv.h"

#include <algorithm>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/kernels/binary/binary_pack.h"
#include "ulp/kernels/common/clamp.h"
#include "ulp/kernels/conv/conv_tasks.h"
#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

constexpr const char* kWhere = "kernels.make_binary_conv";
constexpr BitCounts kBitCounts = count_bits();
constexpr int64_t kGathered = 64;  // pixels whose windows are brought into words at a time

/// A layer over bytes, for what moves them.
ConvConfig bytes_of(const BinaryConvConfig& config) {
  ConvConfig bytes;
  bytes.shape = config.shape;
  bytes.shape.in_channels = bit_bytes(config.shape.in_channels);
  bytes.input = DataType::u8;
  bytes.input_q.zero_point = 0;  // bits of the padding
  return bytes;
}

template <typename T>
AlignedBuffer padded_copy(const T* from, int64_t n, int64_t padded) {
  AlignedBuffer to(padded * static_cast<int64_t>(sizeof(T)));
  if (from != nullptr) std::copy_n(from, n, to.as<T>());
  return to;
}

class BinaryLayer final : public Conv {
 public:
  BinaryLayer(const BinaryConvConfig& config, const BinaryConvWeights& weights, const BinaryKernels& kernels)
      : kernels_(kernels),
        shape_(bytes_of(config).shape),
        layout_(tap_layout(shape_, 1)),
        words_(ceil_div(window_bytes(config.shape), 8)),
        gathers_(kernels.words && (layout_.count > 1 || layout_.length % 8 != 0)),
        residual_(config.residual),
        panels_(ceil_div(shape_.out_channels, kernels.outputs)),
        tasks_(shape_, Staging(bytes_of(config), DataType::u8, nullptr, gathers_, false), kMostBinaryRows,
               kMostBinaryRows),
        packed_(pack_bits(config.shape, weights.bits, kernels)),
        start_(config, weights.bits, padded()),
        offsets_(layout_.count * 8) {
    const bool map = config.scale_map && shape_.out_h() * shape_.out_w() > 1;
    if (weights.threshold == nullptr) {
      scale_ = map ? pack_scale_map(config.shape, weights.scale)
                   : padded_copy(weights.scale, shape_.out_channels, padded());
      scale_step_ = map ? shape_.out_channels : 0;
    }
    set_finish(config, weights);
    const Staging& staging = tasks_.staging();
    for (int64_t t = 0; t < layout_.count; ++t) {
      offsets_.as<int64_t>()[t] = t / layout_.per_row * shape_.dilation_h * staging.row_bytes() +
                                  t % layout_.per_row * shape_.dilation_w * staging.pixel_bytes();
    }
  }

  size_t workspace_bytes(int64_t, int workers) const override {
    return static_cast<size_t>(workers * (tasks_.stage_bytes() + gather_bytes()));
  }

  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    if (batch < 1) return;
    const int64_t weight_bytes = panels_ * kernels_.outputs * window_bytes_();
    const WorkSplit work = tasks_.split(batch, panels_, weight_bytes, 1, parallel.workers());
    const Output output{static_cast<uint8_t*>(y), residual_ ? static_cast<const float*>(residual) : nullptr};
    parallel.run(work.tasks(), [&](int64_t i, int worker) {
      const WorkSplit::Task task = work.task(i);
      uint8_t* buffer = static_cast<uint8_t*>(workspace) + worker * (tasks_.stage_bytes() + gather_bytes());
      const PixelRows rows = tasks_.stage(x, task, buffer);
      const PanelRange range = panels_of_part(panels_, task.part, work.parts);
      if (gathers_) {
        run_gathered(rows, range, output, buffer + tasks_.stage_bytes());
      } else {
        BinaryTileArgs args = tile_args(offsets_.as<int64_t>(), layout_.count, layout_.length,
                                        shape_.stride_w * tasks_.staging().pixel_bytes());
        run_panels(rows, range, output, args);
      }
    });
  }

  std::string name() const override { return std::string("binary_conv_") + kernels_.name; }

 private:
  struct Output {
    uint8_t* y;
    const float* residual;  ///< or null
  };

  bool gives_bits() const { return finish_.threshold != nullptr; }
  int64_t padded() const { return panels_ * kernels_.outputs; }
  int64_t window_bytes_() const { return layout_.count * layout_.length; }
  int64_t gather_bytes() const { return gathers_ ? round_up(kGathered * words_ * 8 + 8, 64) : 0; }

  void set_finish(const BinaryConvConfig& config, const BinaryConvWeights& weights) {
    const int64_t n = shape_.out_channels;
    if (weights.threshold != nullptr) {
      threshold_ = padded_copy(weights.threshold, n, padded());
      flip_ = padded_copy(weights.flip, bit_bytes(n), padded() / 8);
      if (n % 8 != 0) flip_.data()[n / 8] &= static_cast<uint8_t>((1U << n % 8) - 1U);
      // No sum is below this: the bits behind the last channel are 0.
      std::fill(threshold_.as<int32_t>() + n, threshold_.as<int32_t>() + padded(), INT32_MIN);
      finish_.threshold = threshold_.as<int32_t>();
      finish_.flip = flip_.data();
      return;
    }
    if (weights.bias != nullptr) bias_ = padded_copy(weights.bias, n, padded());
    finish_.bias = bias_.as<float>();
    const Clamp clamp = clamp_of(config.activation);
    finish_.lo = clamp.low;
    finish_.hi = clamp.high;
    finish_.curve = curve_of(config.activation);
  }

  BinaryTileArgs tile_args(const int64_t* taps, int64_t count, int64_t bytes, int64_t a_step) const {
    BinaryTileArgs args{};
    args.a_step = a_step;
    args.taps = taps;
    args.tap_count = count;
    args.tap_bytes = bytes;
    args.b_panel = kernels_.words ? words_ * kPanelOutputs * 8 : window_bytes_() * kernels_.outputs * 2;
    args.table = &kBitCounts;
    args.finish = &finish_;
    args.y_step = gives_bits() ? bit_bytes(shape_.out_channels) : shape_.out_channels;
    std::fill_n(args.start, kMostBinaryRows, start_.of(0, 0));
    std::fill_n(args.scale, kMostBinaryRows, scale_.as<float>());
    return args;
  }

  /// Windows in whole words, some pixels at a time.
  void run_gathered(const PixelRows& rows, const PanelRange& range, const Output& output,
                    uint8_t* words) const {
    static constexpr int64_t kNoOffset = 0;
    BinaryTileArgs args = tile_args(&kNoOffset, 1, words_ * 8, words_ * 8);
    const int64_t step = shape_.stride_w * tasks_.staging().pixel_bytes();
    for (int64_t row = 0; row < rows.rows; ++row) {
      for (int64_t pixel = 0; pixel < rows.pixels; pixel += kGathered) {
        const int64_t count = std::min(kGathered, rows.pixels - pixel);
        for (int64_t i = 0; i < count; ++i)
          gather(rows.a + row * rows.row_step + (pixel + i) * step, words + i * words_ * 8);
        run_panels({words, 0, rows.first_pixel + row * rows.pixels + pixel, 1, count}, range, output, args);
      }
    }
  }

  /// Eight bytes at a time: what is too much is written over by the next tap, or cleared.
  void gather(const uint8_t* from, uint8_t* to) const {
    uint8_t* end = to + words_ * 8;
    for (int64_t t = 0; t < layout_.count; ++t) {
      const uint8_t* tap = from + offsets_.as<int64_t>()[t];
      for (int64_t i = 0; i < layout_.length; i += 8) std::memcpy(to + i, tap + i, 8);
      to += layout_.length;
    }
    std::memset(to, 0, static_cast<size_t>(end - to));
  }

  /// log2 of the panels of the next tiles: few pixels leave registers for many panels.
  int panel_choice(int64_t left, int64_t pixels) const {
    if (left >= 4 && pixels <= kernels_.most_rows[2]) return 2;
    return left >= 2 && kernels_.most_rows[1] > 0 ? 1 : 0;
  }

  /// Weights of some panels stay near while all pixels pass.
  void run_panels(const PixelRows& rows, const PanelRange& range, const Output& output,
                  BinaryTileArgs& args) const {
    for (int64_t panel = range.begin; panel < range.end;) {
      const int log2 = panel_choice(range.end - panel, rows.rows * rows.pixels);
      args.b = packed_.data() + panel * args.b_panel;
      args.channel = panel * kernels_.outputs;
      args.channels = shape_.out_channels - args.channel;
      for (int64_t row = 0; row < rows.rows; ++row) run_row(rows, row, log2, output, args);
      panel += int64_t{1} << log2;
    }
  }

  /// Cuts a row into tiles of nearly equal width.
  void run_row(const PixelRows& rows, int64_t row, int log2, const Output& output,
               BinaryTileArgs& args) const {
    const int64_t tiles = ceil_div(rows.pixels, kernels_.most_rows[log2]);
    const int64_t base = rows.pixels / tiles, wider = rows.pixels % tiles;
    const int64_t column = gives_bits() ? args.channel / 8 : args.channel * 4;
    args.a = rows.a + row * rows.row_step;
    int64_t pixel = rows.first_pixel + row * rows.pixels;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t count = base + (i < wider);
      args.y = output.y + pixel * args.y_step * (gives_bits() ? 1 : 4) + column;
      args.residual =
          output.residual == nullptr ? nullptr : output.residual + pixel * args.y_step + args.channel;
      if (scale_step_ != 0 || !start_.uniform()) place(pixel, count, args);
      kernels_.tile[log2][count](args);
      args.a += count * args.a_step;
      pixel += count;
    }
  }

  /// What pixels have of their own.
  void place(int64_t pixel, int64_t count, BinaryTileArgs& args) const {
    const int64_t out_w = shape_.out_w(), image = shape_.out_h() * out_w;
    for (int64_t m = 0; m < count; ++m) {
      const int64_t at = (pixel + m) % image;
      args.start[m] = start_.of(at / out_w, at % out_w);
      args.scale[m] = scale_.as<float>() + at * scale_step_;
    }
  }

  const BinaryKernels& kernels_;
  ConvShape shape_;  ///< in bytes
  TapLayout layout_;
  int64_t words_;
  bool gathers_, residual_;
  int64_t panels_, scale_step_ = 0;
  ConvTasks tasks_;
  AlignedBuffer packed_;
  BinaryStart start_;
  AlignedBuffer scale_, bias_, threshold_, flip_;
  BinaryFinish finish_;
  AlignedBuffer offsets_;
};

using MakeBinary = std::unique_ptr<Conv> (*)(const BinaryConvConfig&, const BinaryConvWeights&);

template <const BinaryKernels& kKernels>
std::unique_ptr<Conv> layer(const BinaryConvConfig& config, const BinaryConvWeights& weights) {
  return std::make_unique<BinaryLayer>(config, weights, kKernels);
}
#if defined(__x86_64__)
std::unique_ptr<Conv> vpopcntdq(const BinaryConvConfig& config, const BinaryConvWeights& weights) {
  if (!cpu_features().avx512_vpopcntdq) return nullptr;
  return layer<kBinaryAvx512Vpopcntdq>(config, weights);
}
#endif

constexpr Variant<MakeBinary> kBinaries[] = {{Isa::avx512, ULP_ON_X86(vpopcntdq)},
                                             {Isa::avx512, ULP_ON_X86(layer<kBinaryAvx512>)},
                                             {Isa::avx2, ULP_ON_X86(layer<kBinaryAvx2>)},
                                             {Isa::neon, ULP_ON_ARM(layer<kBinaryNeon>)},
                                             {Isa::portable, layer<kBinaryPortable>}};

}  // namespace

void check_binary(const BinaryConvConfig& config, const BinaryConvWeights& weights) {
  check_shape(config.shape);
  if (config.shape.groups != 1) fail(kWhere, "expected no groups, got ", config.shape.groups);
  if (window_bytes(config.shape) > kMostBinaryWindow / 8) {
    fail(kWhere, "expected at most ", kMostBinaryWindow, " channels in a window, got ",
         window_bytes(config.shape) * 8);
  }
  if (weights.bits == nullptr) fail(kWhere, "expected weights, got none");
  if ((weights.scale == nullptr) == (weights.threshold == nullptr)) {
    fail(kWhere, "expected scales or thresholds, got ", weights.scale == nullptr ? "neither" : "both");
  }
  const bool floats = weights.bias != nullptr || config.residual || config.activation != Activation::none;
  if (weights.threshold != nullptr && floats) {
    fail(kWhere, "expected no bias, residual and activation with thresholds, got one");
  }
}

int64_t binary_conv_bytes(const BinaryConvConfig& config) {
  const ConvShape& s = config.shape;
  const int64_t outputs = round_up(s.out_channels, kMostPanelOutputs), bytes = window_bytes(s);
  const int64_t kinds = config.padding == BinaryPadding::zero ? std::min(s.out_h(), 2 * s.kernel_h + 1) *
                                                                    std::min(s.out_w(), 2 * s.kernel_w + 1)
                                                              : 1;
  const int64_t map = config.scale_map ? s.out_h() * s.out_w() * s.out_channels * 4 : 0;
  const int64_t sums = (s.kernel_h + 1) * (s.kernel_w + 1) + s.out_h() + s.out_w();
  return outputs * (2 * (bytes + 8) + kinds * 4 + 16) + map + sums * 8;
}

std::unique_ptr<Conv> make_binary_conv(const BinaryConvConfig& config, const BinaryConvWeights& weights,
                                       Isa isa) {
  check_binary(config, weights);
  return make_first(kBinaries, isa, config, weights);
}

}  // namespace ulp::kernels
