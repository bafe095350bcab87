// The convolution driver for the register-tile kernels. Compiled for any machine.
#include "ulp/kernels/conv/conv_tasks.h"
#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/conv/tile_panels.h"

namespace ulp::kernels {
namespace {

class TiledConv final : public RowConv {
 public:
  TiledConv(const ConvConfig& config, const ConvWeights& weights, const TileKernels& kernels)
      : shape_(config.shape),
        name_(std::string("conv_") + kernels.name),
        has_residual_(config.residual),
        residual_bytes_(element_bytes(config.residual_type)),
        output_bytes_(element_bytes(config.output)),
        panels_(config, weights, kernels),
        tasks_(
            config.shape,
            Staging(config, kernels.stage, kernels.copy, panels_.layout().length % kernels.unit != 0, true),
            kMaxTilePixels, 1),
        // A panel of a group may reach into the channels behind it; the last one needs them to exist.
        finish_(make_finish(config, weights, shape_.out_channels + kernels.lanes,
                            config.input == DataType::u8, kernels.input_offset)),
        offsets_(panels_.layout().count * 8) {
    const TapLayout& layout = panels_.layout();
    for (int64_t t = 0; t < layout.count; ++t) {
      const int64_t kh = t / layout.per_row, kw = t % layout.per_row;
      offsets_.as<int64_t>()[t] = kh * shape_.dilation_h * tasks_.staging().row_bytes() +
                                  kw * shape_.dilation_w * tasks_.staging().pixel_bytes();
    }
  }

  size_t workspace_bytes(int64_t, int workers) const override {
    return static_cast<size_t>(workers * worker_bytes());
  }

  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    if (batch < 1) return;
    const WorkSplit work = tasks_.split(batch, panels_.panels(), panels_.bytes(), 1, parallel.workers());
    const TileOutput output = output_at(y, residual);
    parallel.run(work.tasks(), [&](int64_t i, int worker) {
      const WorkSplit::Task task = work.task(i);
      uint8_t* wide = static_cast<uint8_t*>(workspace) + worker * worker_bytes();
      run_part(tasks_.stage(x, task, wide + panels_.wide_bytes()), task.part, work.parts, output, wide);
    });
  }

  std::string name() const override { return name_; }

  const ConvShape& shape() const override { return shape_; }
  const Staging& staging() const override { return tasks_.staging(); }
  int64_t scratch_bytes() const override { return panels_.wide_bytes(); }
  void run_rows(const uint8_t* staged, int64_t rows, const uint8_t* residual, uint8_t* y,
                uint8_t* scratch) const override {
    const bool flat = is_flat(shape_);
    const PixelRows pixels{.a = staged,
                           .row_step = shape_.stride_h * tasks_.staging().row_bytes(),
                           .first_pixel = 0,
                           .rows = flat ? 1 : rows,
                           .pixels = flat ? rows : shape_.out_w()};
    run_part(pixels, 0, 1, output_at(y, residual), scratch);
  }

 private:
  int64_t worker_bytes() const { return panels_.wide_bytes() + tasks_.stage_bytes(); }

  TileOutput output_at(void* y, const void* residual) const {
    return {.y = static_cast<uint8_t*>(y),
            .y_bytes = output_bytes_,
            .residual = has_residual_ ? static_cast<const uint8_t*>(residual) : nullptr,
            .residual_bytes = residual_bytes_};
  }

  void run_part(PixelRows rows, int64_t part, int64_t parts, const TileOutput& output, uint8_t* wide) const {
    TileArgs args{};
    args.a_step = shape_.stride_w * tasks_.staging().pixel_bytes();
    args.taps = offsets_.as<int64_t>();
    args.finish = &finish_.finish;
    for (int64_t g = 0; g < shape_.groups; ++g) {
      panels_.run(rows, output, g, part, parts, args, wide);
      rows.a += shape_.in_channels / shape_.groups * tasks_.staging().element_bytes();
    }
  }

  ConvShape shape_;
  std::string name_;
  bool has_residual_;
  int64_t residual_bytes_, output_bytes_;
  TilePanels panels_;
  ConvTasks tasks_;
  FinishData finish_;
  AlignedBuffer offsets_;
};

}  // namespace

std::unique_ptr<Conv> make_tiled_conv(const ConvConfig& config, const ConvWeights& weights,
                                      const TileKernels& kernels) {
  if (config.input != kernels.input || is_depthwise(config.shape)) return nullptr;
  // A bf16 pair must not take in a neighbour: infinity times a weight of zero is NaN.
  if (kernels.stage == DataType::bf16 && tap_layout(config.shape, 1).length % kernels.unit != 0) {
    return nullptr;
  }
  return std::make_unique<TiledConv>(config, weights, kernels);
}

}  // namespace ulp::kernels
