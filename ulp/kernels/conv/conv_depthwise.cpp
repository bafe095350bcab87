// Depthwise convolution: one input channel for each output channel. Bound by the epilogue and memory, not by
// products.
#include <algorithm>
#include <utility>

#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/conv/work_split.h"

namespace ulp::kernels {
namespace {

class DepthwiseConv final : public RowConv {
 public:
  DepthwiseConv(const ConvConfig& config, const ConvWeights& weights, const DepthwiseKernels& kernels,
                const DepthwiseBytes* bytes)
      : shape_(config.shape),
        quads_(bytes != nullptr && bytes->packing == DepthwisePacking::quads),
        taps_(shape_.kernel_h * shape_.kernel_w),
        repeat_(quads_ && shape_.stride_w == 1 && 64 % shape_.in_channels == 0 ? 64 / shape_.in_channels : 1),
        padded_channels_(round_up(shape_.in_channels, quads_ ? 64 : kernels.lanes)),
        has_residual_(config.residual),
        residual_bytes_(element_bytes(config.residual_type)),
        output_bytes_(element_bytes(config.output)),
        staging_(config, config.input, nullptr,
                 bytes == nullptr && padded_channels_ != config.shape.in_channels, false),
        finish_(make_finish(config, weights, padded_channels_, config.input == DataType::u8)) {
    name_ = std::string("conv_depthwise_") + to_string(config.input) + "_" + kernels.name;
    kernel_ = config.input == DataType::f32    ? kernels.f32
              : config.input == DataType::bf16 ? kernels.bf16
                                               : kernels.u8;
    if (bytes != nullptr) {
      kernel_ = bytes->run;
      name_ += std::string("_") + bytes->name;
    }
    offsets_ = AlignedBuffer(taps_ * 8);
    for (int64_t t = 0; t < taps_; ++t) {
      offsets_.as<int64_t>()[t] = t / shape_.kernel_w * shape_.dilation_h * staging_.row_bytes() +
                                  t % shape_.kernel_w * shape_.dilation_w * staging_.pixel_bytes();
    }
    if (quads_) {
      pack_quads(weights);
    } else if (bytes != nullptr) {
      pack_row_pairs(weights);
    } else {
      pack(config, weights);
    }
    const int64_t one = std::min(shape_.stride_h, shape_.in_h) * staging_.row_bytes();
    cache_rows_ = std::clamp<int64_t>(kStageBytes / one, 1, shape_.out_h());
  }

  size_t workspace_bytes(int64_t, int workers) const override {
    return static_cast<size_t>(workers * staging_.bytes_for_rows(cache_rows_));
  }

  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    if (batch < 1) return;
    const int64_t macs = batch * shape_.out_h() * shape_.out_w() * shape_.in_channels * taps_;
    // A product of a depthwise layer costs about eight times one of a dense layer.
    const WorkSplit work = split_work({.images = batch,
                                       .rows = shape_.out_h(),
                                       .cache_rows = cache_rows_,
                                       .grain = 1,
                                       .pairs = 1,
                                       .macs = 8.0 * static_cast<double>(macs),
                                       .weight_bytes = 0,
                                       .input_bytes = 0},
                                      parallel.workers());
    parallel.run(work.tasks(), [&](int64_t i, int worker) {
      uint8_t* buffer = static_cast<uint8_t*>(workspace) + worker * staging_.bytes_for_rows(cache_rows_);
      run_task(work.task(i), x, has_residual_ ? static_cast<const uint8_t*>(residual) : nullptr,
               static_cast<uint8_t*>(y), buffer);
    });
  }

  std::string name() const override { return name_; }

  const ConvShape& shape() const override { return shape_; }
  const Staging& staging() const override { return staging_; }
  void run_rows(const uint8_t* staged, int64_t rows, const uint8_t* residual, uint8_t* y,
                uint8_t*) const override {
    DepthwiseArgs args{};
    args.a_step = shape_.stride_w * staging_.pixel_bytes();
    args.taps = offsets_.as<int64_t>();
    args.tap_count = taps_;
    args.kernel_w = shape_.kernel_w;
    args.column_bytes = shape_.dilation_w == 1 ? staging_.pixel_bytes() : 0;
    args.weights = weights_.data();
    args.weight_step = padded_channels_;
    args.finish = &finish_.finish;
    args.channels = shape_.in_channels;
    args.pixels = shape_.out_w();
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row * shape_.out_w() * shape_.out_channels;
      args.a = staged + row * shape_.stride_h * staging_.row_bytes();
      args.y = y + at * output_bytes_;
      args.residual = residual == nullptr || !has_residual_ ? nullptr : residual + at * residual_bytes_;
      run_row(args);
    }
  }

 private:
  void pack(const ConvConfig& config, const ConvWeights& weights) {
    weights_ = AlignedBuffer(taps_ * padded_channels_ * 4);
    for (int64_t t = 0; t < taps_; ++t) {
      for (int64_t c = 0; c < shape_.in_channels; ++c) {
        const int64_t from = c * taps_ + t, to = t * padded_channels_ + c;
        if (config.input == DataType::u8) {
          weights_.as<int32_t>()[to] = weights.i8[from];
        } else if (config.input == DataType::bf16) {
          weights_.as<float>()[to] = bf16_to_float(bf16_weight(weights, from));
        } else {
          weights_.as<float>()[to] = weights.f32[from];
        }
      }
    }
  }

  void pack_row_pairs(const ConvWeights& weights) {
    constexpr int64_t kBlock = 16;
    const int64_t columns = ceil_div(shape_.kernel_h, 2) * shape_.kernel_w;
    const int64_t blocks = ceil_div(shape_.in_channels, kBlock);
    weights_ = AlignedBuffer(blocks * columns * kBlock * 4);
    for (int64_t i = 0; i < blocks * kBlock; ++i) {
      const int64_t c = std::min(i / kBlock * kBlock, shape_.in_channels - kBlock) + i % kBlock;
      for (int64_t t = 0; t < taps_; ++t) {
        const int64_t row = t / shape_.kernel_w;
        const int64_t column = i / kBlock * columns + row / 2 * shape_.kernel_w + t % shape_.kernel_w;
        weights_.as<int16_t>()[(column * kBlock + i % kBlock) * 2 + row % 2] = weights.i8[c * taps_ + t];
      }
    }
  }

  void pack_quads(const ConvWeights& weights) {
    weights_ = AlignedBuffer(taps_ * padded_channels_ * 4);
    const FinishData given = std::move(finish_);
    finish_.finish = given.finish;
    finish_.bias = AlignedBuffer(padded_channels_ * 4);
    finish_.multiplier = AlignedBuffer(padded_channels_ * 4);
    for (int64_t k = 0; k < shape_.in_channels * repeat_; ++k) {
      const int64_t c = k % shape_.in_channels, block = k / 64 * 64, q = k % 4, i = k % 64 / 4;
      finish_.bias.as<int32_t>()[block + q * 16 + i] = given.bias.as<int32_t>()[c];
      finish_.multiplier.as<float>()[block + q * 16 + i] = given.multiplier.as<float>()[c];
      for (int64_t t = 0; t < taps_; ++t) {
        weights_.as<int8_t>()[(block * taps_ + t * 64 + q * 16) * 4 + k % 64] = weights.i8[c * taps_ + t];
      }
    }
    finish_.finish.bias = finish_.bias.data();
    finish_.finish.multiplier = finish_.multiplier.as<float>();
  }

  void run_task(const WorkSplit::Task& task, const void* x, const uint8_t* residual, uint8_t* y,
                uint8_t* buffer) const {
    const uint8_t* start = staging_.rows(x, task.image, task.first, task.end, buffer);
    const int64_t at = (task.image * shape_.out_h() + task.first) * shape_.out_w() * shape_.out_channels;
    run_rows(start, task.end - task.first, residual == nullptr ? nullptr : residual + at * residual_bytes_,
             y + at * output_bytes_, nullptr);
  }

  /// With few channels and no stride a row is one run of bytes: several pixels pass for one of 64 channels.
  void run_row(DepthwiseArgs args) const {
    if (repeat_ == 1) return kernel_(args);
    const int64_t bytes = args.pixels * shape_.in_channels;
    args.channels = args.a_step = 64;
    args.pixels = bytes / 64;
    if (args.pixels > 0) kernel_(args);
    const int64_t done = args.pixels * 64;
    if (done == bytes) return;
    args.a += done;
    args.y = static_cast<uint8_t*>(args.y) + done;
    if (args.residual != nullptr) args.residual = static_cast<const uint8_t*>(args.residual) + done;
    args.channels = bytes - done;
    args.pixels = 1;
    kernel_(args);
  }

  ConvShape shape_;
  bool quads_;  // four channels a lane
  int64_t taps_;
  int64_t repeat_;  // pixels in one run of 64 bytes
  int64_t padded_channels_;
  bool has_residual_;
  int64_t residual_bytes_, output_bytes_;
  Staging staging_;
  FinishData finish_;
  AlignedBuffer weights_, offsets_;
  DepthwiseFn kernel_ = nullptr;
  int64_t cache_rows_ = 1;
  std::string name_;
};

}  // namespace

std::unique_ptr<Conv> make_depthwise_conv(const ConvConfig& config, const ConvWeights& weights,
                                          const DepthwiseKernels& kernels, const DepthwiseBytes* bytes) {
  if (!is_depthwise(config.shape)) return nullptr;
  const bool all_bytes = config.input == DataType::u8 && config.output == DataType::u8 &&
                         (!config.residual || config.residual_type == DataType::u8);
  const bool takes = bytes != nullptr && all_bytes && config.shape.in_channels >= bytes->least_channels;
  return std::make_unique<DepthwiseConv>(config, weights, kernels, takes ? bytes : nullptr);
}

}  // namespace ulp::kernels
