#include "ulp/kernels/binary/binary_pack.h"

#include <algorithm>
#include <bit>

namespace ulp::kernels {
namespace {

/// Byte `at` of an output's window without the bits behind the last channel.
uint8_t weight_byte(const ConvShape& s, const uint8_t* window, int64_t at) {
  const int64_t bytes = bit_bytes(s.in_channels), used = s.in_channels % 8;
  const bool cut = used != 0 && at % bytes == bytes - 1;
  return static_cast<uint8_t>(window[at] & (cut ? (1U << used) - 1U : 0xffU));
}

AlignedBuffer pack_words(const ConvShape& s, const uint8_t* bits) {
  const int64_t bytes = window_bytes(s), words = ceil_div(bytes, 8);
  AlignedBuffer packed(round_up(s.out_channels, kPanelOutputs) * words * 8);
  for (int64_t o = 0; o < s.out_channels; ++o) {
    for (int64_t at = 0; at < bytes; ++at) {
      const int64_t word = (o / kPanelOutputs * words + at / 8) * kPanelOutputs + o % kPanelOutputs;
      packed.data()[word * 8 + at % 8] = weight_byte(s, bits + o * bytes, at);
    }
  }
  return packed;
}

AlignedBuffer pack_nibbles(const ConvShape& s, const uint8_t* bits, int64_t outputs) {
  const int64_t bytes = window_bytes(s);
  AlignedBuffer packed(round_up(s.out_channels, outputs) * bytes * 2);
  for (int64_t o = 0; o < s.out_channels; ++o) {
    for (int64_t at = 0; at < bytes; ++at) {
      const int64_t part = (o / outputs * bytes + at) * outputs + o % outputs / kPanelOutputs * kPanelOutputs;
      uint8_t* to = packed.data() + part * 2 + o % kPanelOutputs;
      const uint8_t byte = weight_byte(s, bits + o * bytes, at);
      to[0] = byte & 15U;
      to[kPanelOutputs] = byte >> 4;
    }
  }
  return packed;
}

}  // namespace

int64_t window_bytes(const ConvShape& shape) {
  return shape.kernel_h * shape.kernel_w * bit_bytes(shape.in_channels);
}

AlignedBuffer pack_bits(const ConvShape& shape, const uint8_t* bits, const BinaryKernels& kernels) {
  return kernels.words ? pack_words(shape, bits) : pack_nibbles(shape, bits, kernels.outputs);
}

AlignedBuffer pack_scale_map(const ConvShape& shape, const float* scale) {
  const int64_t pixels = shape.out_h() * shape.out_w(), n = shape.out_channels;
  AlignedBuffer packed((pixels * n + kPanelOutputs) * 4);  // vectors read behind the last one
  for (int64_t o = 0; o < n; ++o) {
    for (int64_t p = 0; p < pixels; ++p) packed.as<float>()[p * n + o] = scale[o * pixels + p];
  }
  return packed;
}

BinaryStart::Axis::Axis(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
                        int64_t dilation, bool zero) {
  kind.resize(static_cast<size_t>(out));
  for (int64_t i = 0; i < out; ++i) {
    Range range{0, kernel};
    if (zero) {
      const int64_t first = i * stride - pad;  // where tap 0 lies
      range.begin = std::clamp<int64_t>(first < 0 ? ceil_div(-first, dilation) : 0, 0, kernel);
      range.end = std::clamp<int64_t>(first < in ? ceil_div(in - first, dilation) : 0, range.begin, kernel);
    }
    if (ranges.empty() || ranges.back() != range) ranges.push_back(range);
    kind[static_cast<size_t>(i)] = count() - 1;
  }
}

BinaryStart::BinaryStart(const BinaryConvConfig& config, const uint8_t* bits, int64_t padded)
    : padded_(padded),
      rows_(config.shape.in_h, config.shape.out_h(), config.shape.kernel_h, config.shape.stride_h,
            config.shape.pad_h, config.shape.dilation_h, config.padding == BinaryPadding::zero),
      columns_(config.shape.in_w, config.shape.out_w(), config.shape.kernel_w, config.shape.stride_w,
               config.shape.pad_w, config.shape.dilation_w, config.padding == BinaryPadding::zero),
      numbers_(rows_.count() * columns_.count() * padded * 4) {
  fill(config.shape, bits);
}

void BinaryStart::fill(const ConvShape& s, const uint8_t* bits) {
  const int64_t across = s.kernel_w + 1, bytes = bit_bytes(s.in_channels);
  // Sums of the weights above and left of each tap, of one output.
  std::vector<int64_t> sums(static_cast<size_t>((s.kernel_h + 1) * across));
  const auto sum = [&](int64_t h, int64_t w) -> int64_t& {
    return sums[static_cast<size_t>(h * across + w)];
  };
  for (int64_t o = 0; o < s.out_channels; ++o) {
    const uint8_t* window = bits + o * window_bytes(s);
    for (int64_t h = 0; h < s.kernel_h; ++h) {
      int64_t row = 0;
      for (int64_t w = 0; w < s.kernel_w; ++w) {
        row += s.in_channels;
        for (int64_t i = 0; i < bytes; ++i)
          row -= 2 * std::popcount(weight_byte(s, window, (h * s.kernel_w + w) * bytes + i));
        sum(h + 1, w + 1) = sum(h, w + 1) + row;
      }
    }
    int32_t* to = numbers_.as<int32_t>() + o;
    const int64_t all = s.kernel_h * s.kernel_w * s.in_channels;
    for (const Axis::Range& h : rows_.ranges) {
      for (const Axis::Range& w : columns_.ranges) {
        const int64_t inside =
            sum(h.end, w.end) - sum(h.begin, w.end) - sum(h.end, w.begin) + sum(h.begin, w.begin);
        *to = static_cast<int32_t>(all - (sum(s.kernel_h, s.kernel_w) - inside));
        to += padded_;
      }
    }
  }
}

}  // namespace ulp::kernels
