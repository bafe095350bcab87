// Binary layers and signs in plain loops over numbers of +1 and -1.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "helpers.h"
#include "ulp/kernels/binary/binary_conv.h"
#include "ulp/kernels/elementwise/elementwise.h"

namespace ulp::kernels::test {

/// Rows of +1 and -1 to bits, one byte after the other.
inline std::vector<uint8_t> bits_of(const std::vector<int>& signs, int64_t channels) {
  const auto rows = static_cast<int64_t>(signs.size()) / channels;
  std::vector<uint8_t> bits(static_cast<size_t>(rows * bit_bytes(channels)), 0);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < channels; ++c) {
      if (signs[static_cast<size_t>(r * channels + c)] > 0) continue;
      uint8_t& byte = bits[static_cast<size_t>(r * bit_bytes(channels) + c / 8)];
      byte = static_cast<uint8_t>(byte | 1U << c % 8);
    }
  }
  return bits;
}

inline std::vector<int> random_signs(int64_t n, uint32_t seed) {
  std::vector<int> signs = random_ints<int>(n, seed, 0, 1);
  for (int& sign : signs) sign = 2 * sign - 1;
  return signs;
}

/// What a layer gets beside its input.
struct BinaryEnding {
  bool bits = false;  ///< the result, by thresholds
  bool bias = false, residual = false, map = false, flip = false;
  Activation activation = Activation::none;
};

/// A layer with random numbers in all forms.
struct BinaryData {
  BinaryConvConfig config;
  BinaryEnding ending;
  int64_t batch;
  std::vector<int> x, w;
  std::vector<uint8_t> x_bits, w_bits, flip;
  std::vector<float> scale, bias, residual;
  std::vector<int32_t> threshold;

  BinaryData(const BinaryConvConfig& given, const BinaryEnding& e, int64_t images)
      : config(given), ending(e), batch(images) {
    const ConvShape& s = config.shape;
    config.activation = e.activation;
    config.residual = e.residual;
    config.scale_map = e.map;
    const int64_t outputs = s.out_channels, pixels = s.out_h() * s.out_w();
    const int64_t window = s.kernel_h * s.kernel_w * s.in_channels;
    x = random_signs(batch * s.in_h * s.in_w * s.in_channels, 1);
    w = random_signs(outputs * window, 2);
    x_bits = bits_of(x, s.in_channels);
    w_bits = bits_of(w, s.in_channels);
    // Bits behind the last channel of a weight mean nothing.
    if (s.in_channels % 8 != 0) {
      const auto bytes = static_cast<size_t>(bit_bytes(s.in_channels));
      for (size_t i = bytes - 1; i < w_bits.size(); i += bytes)
        w_bits[i] = static_cast<uint8_t>(w_bits[i] | 0xffU << s.in_channels % 8);
    }
    scale = random_floats(outputs * (e.map ? pixels : 1), 3, -2, 2);
    bias = random_floats(outputs, 4, -3, 3);
    residual = random_floats(batch * pixels * outputs, 5, -3, 3);
    const int spread = static_cast<int>(window < 100 ? window : 100);
    threshold = random_ints<int32_t>(outputs, 6, -spread, spread);
    threshold[0] = INT32_MAX;  // none is as large
    if (outputs > 1) threshold[1] = INT32_MIN;
    flip = random_ints<uint8_t>(bit_bytes(outputs), 7, 0, 255);
  }

  BinaryConvWeights weights() const {
    if (ending.bits) {
      return {
          .bits = w_bits.data(), .threshold = threshold.data(), .flip = ending.flip ? flip.data() : nullptr};
    }
    return {.bits = w_bits.data(), .scale = scale.data(), .bias = ending.bias ? bias.data() : nullptr};
  }

  int dot(int64_t image, int64_t oh, int64_t ow, int64_t o) const {
    const ConvShape& s = config.shape;
    int sum = 0;
    for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
      for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
        const int64_t ih = oh * s.stride_h - s.pad_h + kh * s.dilation_h;
        const int64_t iw = ow * s.stride_w - s.pad_w + kw * s.dilation_w;
        const bool inside = ih >= 0 && ih < s.in_h && iw >= 0 && iw < s.in_w;
        const int outside = config.padding == BinaryPadding::one ? 1 : 0;
        const int* weight =
            &w[static_cast<size_t>(((o * s.kernel_h + kh) * s.kernel_w + kw) * s.in_channels)];
        const int* pixel =
            inside ? &x[static_cast<size_t>(((image * s.in_h + ih) * s.in_w + iw) * s.in_channels)] : nullptr;
        for (int64_t c = 0; c < s.in_channels; ++c) sum += weight[c] * (inside ? pixel[c] : outside);
      }
    }
    return sum;
  }

  int64_t output_bytes() const {
    const ConvShape& s = config.shape;
    return batch * s.out_h() * s.out_w() * (ending.bits ? bit_bytes(s.out_channels) : 4 * s.out_channels);
  }

  /// The result in plain loops.
  std::vector<uint8_t> expected() const {
    const ConvShape& s = config.shape;
    std::vector<int> signs;
    std::vector<float> floats;
    for (int64_t image = 0; image < batch; ++image) {
      for (int64_t oh = 0; oh < s.out_h(); ++oh) {
        for (int64_t ow = 0; ow < s.out_w(); ++ow) {
          for (int64_t o = 0; o < s.out_channels; ++o) {
            const int sum = dot(image, oh, ow, o);
            const auto at = static_cast<size_t>(o);
            if (ending.bits) {
              const bool flipped = ending.flip && (flip[at / 8] >> at % 8 & 1) != 0;
              signs.push_back((sum >= threshold[at]) != flipped ? 1 : -1);
              continue;
            }
            const size_t element = (at * static_cast<size_t>(s.out_h()) + static_cast<size_t>(oh)) *
                                       static_cast<size_t>(s.out_w()) +
                                   static_cast<size_t>(ow);
            float v = scale[ending.map ? element : at] * static_cast<float>(sum);
            if (ending.bias) v = v + bias[at];
            if (ending.residual) v = v + residual[floats.size()];
            floats.push_back(v);
          }
        }
      }
    }
    if (ending.bits) return bits_of(signs, s.out_channels);
    apply(ending.activation, floats);
    std::vector<uint8_t> bytes(floats.size() * 4);
    std::memcpy(bytes.data(), floats.data(), bytes.size());
    return bytes;
  }

 private:
  static void apply(Activation activation, std::vector<float>& values) {
    if (is_smooth_activation(activation)) {
      activate(DataType::f32, activation, values.data(), values.data(), static_cast<int64_t>(values.size()),
               {}, Isa::portable, SerialParallel());
      return;
    }
    const ActivationInfo& info = info_of(activation);
    for (float& v : values) {
      v = v < info.low ? info.low : v;
      v = v > info.high ? info.high : v;
    }
  }
};

}  // namespace ulp::kernels::test
