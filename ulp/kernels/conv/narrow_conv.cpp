#include "ulp/kernels/conv/narrow_conv.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ulp/kernels/common/aligned_buffer.h"
#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/elementwise/elementwise.h"

namespace ulp::kernels {
namespace {

class NarrowConv final : public Conv {
 public:
  NarrowConv(const ConvShape& shape, std::unique_ptr<Conv> inside, Isa isa)
      : item_(shape.in_h * shape.in_w * shape.in_channels), inside_(std::move(inside)), isa_(isa) {}

  size_t workspace_bytes(int64_t batch, int workers) const override {
    return input_bytes(batch) + inside_->workspace_bytes(batch, workers);
  }
  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    auto* rounded = static_cast<uint16_t*>(workspace);
    convert_f32_to_bf16(static_cast<const float*>(x), rounded, batch * item_, isa_, parallel);
    inside_->run(batch, rounded, residual, y, static_cast<std::byte*>(workspace) + input_bytes(batch),
                 parallel);
  }
  /// Weights have half the bytes of f32.
  Density density(int64_t batch) const override {
    const Density inside = inside_->density(batch);
    return {inside.products, inside.bytes / 2};
  }
  std::string name() const override { return inside_->name() + "_of_f32"; }

 private:
  size_t input_bytes(int64_t batch) const {
    return static_cast<size_t>(round_up(batch * item_ * element_bytes(DataType::bf16), 64));
  }

  int64_t item_;  ///< elements of an image, or of a row
  std::unique_ptr<Conv> inside_;
  Isa isa_;
};

}  // namespace

std::unique_ptr<Conv> make_narrow_conv(const ConvConfig& config, const ConvWeights& weights, Isa isa) {
  if (config.input != DataType::f32) return nullptr;
  ConvConfig inside = config;
  inside.input = DataType::bf16;
  return std::make_unique<NarrowConv>(config.shape, make_conv(inside, weights, isa), isa);
}

double narrow_error(const ConvConfig& config, const ConvWeights& weights) {
  const ConvShape& s = config.shape;
  const int64_t per_channel = s.in_channels / s.groups * s.kernel_h * s.kernel_w;
  double largest = 0;
  for (int64_t c = 0; c < s.out_channels; ++c) {
    double changes = 0, squares = 0;
    for (int64_t k = 0; k < per_channel; ++k) {
      const float w = weights.f32[c * per_channel + k];
      const double change = double{bf16_to_float(float_to_bf16(w))} - double{w};
      changes += change * change;
      squares += double{w} * double{w};
    }
    if (!std::isfinite(changes) || !std::isfinite(squares)) return std::numeric_limits<double>::infinity();
    if (squares > 0) largest = std::max(largest, changes / squares);
  }
  constexpr double kOfInputs = 0x1p-16 / 7;  // squared
  return std::sqrt(largest + kOfInputs);
}

}  // namespace ulp::kernels
