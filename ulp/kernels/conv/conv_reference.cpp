// The plain C++ convolution: takes every configuration, and is what the fast ones are compared with.
#include <algorithm>
#include <type_traits>

#include "ulp/kernels/conv/conv_impl.h"
#include "ulp/kernels/elementwise/activations.h"

namespace ulp::kernels {
namespace {

template <typename Input>
struct Numbers;
template <>
struct Numbers<float> {
  using Weight = float;
  using Sum = float;
  static constexpr const char* kName = "conv_f32_portable";
  static float value(float x, int32_t) { return x; }
};
template <>
struct Numbers<uint16_t> {
  using Weight = float;  // rounded to bf16, kept widened
  using Sum = float;
  static constexpr const char* kName = "conv_bf16_portable";
  static float value(uint16_t x, int32_t) { return bf16_to_float(x); }
};
template <>
struct Numbers<uint8_t> {
  using Weight = int16_t;
  using Sum = uint32_t;  // wraps without undefined behaviour, and equals int32 where that does not overflow
  static constexpr const char* kName = "conv_u8_portable";
  static uint32_t value(uint8_t x, int32_t zero) { return static_cast<uint32_t>(int32_t{x} - zero); }
};

template <typename Input>
class ReferenceConv final : public Conv {
  using N = Numbers<Input>;
  using Weight = typename N::Weight;
  using Sum = typename N::Sum;

 public:
  ReferenceConv(const ConvConfig& config, const ConvWeights& weights)
      : shape_(config.shape),
        input_zero_(config.input == DataType::u8 ? config.input_q.zero_point : 0),
        residual_(config.residual),
        finish_(make_finish(config, weights, config.shape.out_channels, false)) {
    pack(weights);
  }

  size_t workspace_bytes(int64_t, int workers) const override {
    return static_cast<size_t>(workers * round_up(shape_.out_channels * 4, 64));
  }

  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    const int64_t out_h = shape_.out_h();
    parallel.run(batch * out_h, [&](int64_t task, int worker) {
      Sum* sums = reinterpret_cast<Sum*>(static_cast<uint8_t*>(workspace) +
                                         worker * round_up(shape_.out_channels * 4, 64));
      row(task / out_h, task % out_h, static_cast<const Input*>(x), residual_ ? residual : nullptr, y, sums);
    });
  }

  std::string name() const override { return N::kName; }

 private:
  /// Weights become [tap][input channel of the group][output channel], so that the inner loop is contiguous.
  void pack(const ConvWeights& weights) {
    const int64_t taps = shape_.kernel_h * shape_.kernel_w, depth = shape_.in_channels / shape_.groups;
    weights_ = AlignedBuffer(taps * depth * shape_.out_channels * static_cast<int64_t>(sizeof(Weight)));
    for (int64_t o = 0; o < shape_.out_channels; ++o) {
      for (int64_t i = 0; i < depth; ++i) {
        for (int64_t t = 0; t < taps; ++t) {
          const int64_t from = (o * depth + i) * taps + t;
          Weight& to = weights_.as<Weight>()[(t * depth + i) * shape_.out_channels + o];
          if constexpr (std::is_same_v<Input, uint8_t>) {
            to = weights.i8[from];
          } else if constexpr (std::is_same_v<Input, uint16_t>) {
            to = bf16_to_float(bf16_weight(weights, from));
          } else {
            to = weights.f32[from];
          }
        }
      }
    }
  }

  void row(int64_t image, int64_t oh, const Input* x, const void* residual, void* y, Sum* sums) const {
    const ConvShape& s = shape_;
    const int64_t out_w = s.out_w(), n = s.out_channels;
    for (int64_t ow = 0; ow < out_w; ++ow) {
      const Sum* bias = static_cast<const Sum*>(finish_.finish.bias);
      std::copy_n(bias, n, sums);
      for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
        const int64_t ih = oh * s.stride_h - s.pad_h + kh * s.dilation_h;
        if (ih < 0 || ih >= s.in_h) continue;
        for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
          const int64_t iw = ow * s.stride_w - s.pad_w + kw * s.dilation_w;
          if (iw < 0 || iw >= s.in_w) continue;
          tap(kh * s.kernel_w + kw, x + ((image * s.in_h + ih) * s.in_w + iw) * s.in_channels, sums);
        }
      }
      const int64_t base = ((image * s.out_h() + oh) * out_w + ow) * n;
      const Finish& f = finish_.finish;
      for (int64_t o = 0; o < n; ++o) {
        float v = 0;
        if constexpr (std::is_same_v<Input, uint8_t>) {
          v = static_cast<float>(static_cast<int32_t>(sums[o])) * f.multiplier[o];
        } else {
          v = sums[o];
        }
        finish_store(f, v, residual, y, base + o);
      }
      if (f.curve != Activation::none && f.output == DataType::f32) {
        apply_curve(f.curve, static_cast<float*>(y) + base, static_cast<float*>(y) + base, n);
      }
    }
  }

  void tap(int64_t t, const Input* x, Sum* sums) const {
    const int64_t depth = shape_.in_channels / shape_.groups, width = shape_.out_channels / shape_.groups;
    for (int64_t g = 0; g < shape_.groups; ++g) {
      Sum* to = sums + g * width;
      for (int64_t i = 0; i < depth; ++i) {
        const Sum value = N::value(x[g * depth + i], input_zero_);
        const Weight* w = weights_.as<Weight>() + (t * depth + i) * shape_.out_channels + g * width;
        for (int64_t o = 0; o < width; ++o) to[o] += value * static_cast<Sum>(w[o]);
      }
    }
  }

  ConvShape shape_;
  int32_t input_zero_;
  bool residual_;
  FinishData finish_;
  AlignedBuffer weights_;
};

}  // namespace

std::unique_ptr<Conv> make_reference_conv(const ConvConfig& config, const ConvWeights& weights) {
  if (config.input == DataType::u8) return std::make_unique<ReferenceConv<uint8_t>>(config, weights);
  if (config.input == DataType::bf16) return std::make_unique<ReferenceConv<uint16_t>>(config, weights);
  return std::make_unique<ReferenceConv<float>>(config, weights);
}

}  // namespace ulp::kernels
