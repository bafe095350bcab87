// The driver of bitmask layers, and how they are packed.
#include <algorithm>
#include <cstring>
#include <string>

#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/conv/work_split.h"
#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/sparse/bitmask_kernel.h"
#include "ulp/kernels/sparse/sparse_linear.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kVector = kMaskOutputs * kMaskInputs;

/// What BitmaskTileArgs points to, for all panels.
class BitmaskPack {
 public:
  BitmaskPack(const ConvConfig& config, const ConvWeights& weights)
      : panels_(ceil_div(config.shape.out_channels, kMaskOutputs)),
        quads_(ceil_div(config.shape.in_channels, kMaskInputs)),
        begin_((panels_ + 1) * 8),
        masks_(panels_ * quads_ * 8) {
    const AlignedBuffer dense = pack_panels(config, weights, tap_layout(config.shape, kMaskInputs),
                                            kMaskInputs, kMaskOutputs, DataType::i8);
    const int64_t weights_padded = panels_ * quads_ * kVector;
    const int8_t* all = dense.as<int8_t>();
    values_ = AlignedBuffer(weights_padded - std::count(all, all + weights_padded, int8_t{0}) + kVector);
    int8_t* to = values_.as<int8_t>();
    for (int64_t v = 0; v < panels_ * quads_; ++v) {
      if (v % quads_ == 0) begin_.as<int64_t>()[v / quads_] = to - values_.as<int8_t>();
      for (int64_t bit = 0; bit < kVector; ++bit) {
        const int8_t value = all[v * kVector + bit];
        if (value == 0) continue;
        masks_.as<uint64_t>()[v] |= uint64_t{1} << bit;
        *to++ = value;
      }
    }
    begin_.as<int64_t>()[panels_] = to - values_.as<int8_t>();
  }

  int64_t panels() const { return panels_; }
  int64_t quads() const { return quads_; }
  int64_t kept() const { return begin_.as<int64_t>()[panels_]; }
  const uint64_t* masks(int64_t panel) const { return masks_.as<uint64_t>() + panel * quads_; }
  const int8_t* values(int64_t panel) const { return values_.as<int8_t>() + begin_.as<int64_t>()[panel]; }

 private:
  int64_t panels_, quads_;
  AlignedBuffer begin_, masks_, values_;
};

class BitmaskLinear final : public Conv {
 public:
  BitmaskLinear(const ConvConfig& config, const ConvWeights& weights, const BitmaskKernels& kernels)
      : kernels_(kernels),
        pixels_(config.shape.in_h * config.shape.in_w),
        in_(config.shape.in_channels),
        out_(config.shape.out_channels),
        output_bytes_(element_bytes(config.output)),
        residual_bytes_(config.residual ? element_bytes(config.residual_type) : 0),
        pack_(config, weights),
        // The last panel needs the channels behind it to exist.
        finish_(make_finish(config, weights, out_ + kMaskOutputs, true)) {}

  size_t workspace_bytes(int64_t, int workers) const override {
    return static_cast<size_t>(workers * worker_bytes());
  }

  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    const int64_t rows = batch * pixels_;
    if (rows < 1) return;
    // What takes time is reading the weights: as much as if every weight were a product.
    const double macs = static_cast<double>(rows) * static_cast<double>(in_ * out_);
    const WorkSplit work = split_work({.images = 1,
                                       .rows = rows,
                                       .cache_rows = kMostMaskRows,
                                       .grain = kMostMaskRows,
                                       .pairs = ceil_div(pack_.panels(), 2),
                                       .macs = macs,
                                       .weight_bytes = in_ * out_,
                                       .input_bytes = rows * in_},
                                      parallel.workers());
    parallel.run(work.tasks(), [&](int64_t i, int worker) {
      const WorkSplit::Task task = work.task(i);
      const int64_t count = task.end - task.first;
      const uint8_t* a = stage(static_cast<const uint8_t*>(x) + task.first * in_, count,
                               static_cast<uint8_t*>(workspace) + worker * worker_bytes());
      const PanelRange range = panels_of_part(pack_.panels(), task.part, work.parts);
      for (int64_t panel = range.begin; panel < range.end; ++panel) {
        const int64_t at = task.first * out_ + panel * kMaskOutputs;
        run_tile(
            a, count, panel,
            residual_bytes_ == 0 ? nullptr : static_cast<const uint8_t*>(residual) + at * residual_bytes_,
            static_cast<uint8_t*>(y) + at * output_bytes_);
      }
    });
  }

  std::string name() const override { return std::string("linear_") + kernels_.name; }
  Density density(int64_t) const override {
    const auto weights = static_cast<double>(in_ * out_);
    return {.bytes = std::min(1.0, static_cast<double>(pack_.kept()) / weights + 1.0 / 8)};
  }

 private:
  int64_t row_bytes() const { return pack_.quads() * kMaskInputs; }
  int64_t worker_bytes() const { return row_bytes() == in_ ? 0 : round_up(kMostMaskRows * row_bytes(), 64); }

  /// Rows of whole quads.
  const uint8_t* stage(const uint8_t* x, int64_t count, uint8_t* buffer) const {
    if (row_bytes() == in_) return x;
    for (int64_t m = 0; m < count; ++m) {
      std::memcpy(buffer + m * row_bytes(), x + m * in_, static_cast<size_t>(in_));
      std::memset(buffer + m * row_bytes() + in_, 0, static_cast<size_t>(row_bytes() - in_));
    }
    return buffer;
  }

  void run_tile(const uint8_t* a, int64_t rows, int64_t panel, const void* residual, void* y) const {
    BitmaskTileArgs args{};
    args.out.finish = &finish_.finish;
    args.out.channel = panel * kMaskOutputs;
    args.out.channels = out_ - args.out.channel;
    args.out.y = y;
    args.out.residual = residual;
    args.out.y_step = out_;
    args.a = a;
    args.a_step = row_bytes();
    args.quads = pack_.quads();
    args.masks = pack_.masks(panel);
    args.values = pack_.values(panel);
    kernels_.tile[rows](args);
  }

  const BitmaskKernels& kernels_;
  int64_t pixels_, in_, out_, output_bytes_, residual_bytes_;
  BitmaskPack pack_;
  FinishData finish_;
};

using MakeBitmask = std::unique_ptr<Conv> (*)(const ConvConfig&, const ConvWeights&);

#if defined(__x86_64__)
std::unique_ptr<Conv> vbmi2(const ConvConfig& config, const ConvWeights& weights) {
  if (!cpu_features().avx512_vbmi2) return nullptr;
  return std::make_unique<BitmaskLinear>(config, weights, kBitmaskAvx512Vbmi2);
}
#endif
std::unique_ptr<Conv> portable(const ConvConfig& config, const ConvWeights& weights) {
  return std::make_unique<BitmaskLinear>(config, weights, kBitmaskPortable);
}

constexpr Variant<MakeBitmask> kBitmasks[] = {{Isa::avx512_vnni, ULP_ON_X86(vbmi2)},
                                              {Isa::portable, portable}};

}  // namespace

std::unique_ptr<Conv> make_bitmask_linear(const ConvConfig& config, const ConvWeights& weights, Isa isa) {
  check_layer(config, weights);
  if (!is_linear(config.shape) || config.input != DataType::u8) return nullptr;
  return make_first(kBitmasks, isa, config, weights);
}

}  // namespace ulp::kernels
