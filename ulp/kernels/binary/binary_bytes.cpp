// Binary layers by 8-bit products: bits become codes of -1 and +1, and a layer over bytes takes the sums.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "ulp/kernels/binary/binary_conv.h"
#include "ulp/kernels/binary/binary_pack.h"
#include "ulp/kernels/common/clamp.h"
#include "ulp/kernels/common/split.h"
#include "ulp/kernels/elementwise/activations.h"

namespace ulp::kernels {
namespace {

constexpr uint8_t kZero = 1;                       // the code of 0; those of -1 and +1 lie around it
constexpr int64_t kMostWindow = int64_t{1} << 24;  // sums that a float holds
constexpr int64_t kChunkBytes = int64_t{1} << 20;  // of codes and sums at a time

/// The codes of eight signs.
constexpr std::array<uint64_t, 256> make_codes() {
  std::array<uint64_t, 256> codes{};
  for (size_t byte = 0; byte < codes.size(); ++byte) {
    for (unsigned bit = 0; bit < 8; ++bit)
      codes[byte] |= uint64_t{(byte >> bit & 1U) != 0 ? 0U : 2U} << 8 * bit;
  }
  return codes;
}
constexpr std::array<uint64_t, 256> kCodes = make_codes();

/// [out][kh][kw][bytes] of bits -> [out][in][kh][kw] of -1 and +1.
std::vector<int8_t> unpack_weights(const ConvShape& s, const uint8_t* bits) {
  const int64_t taps = s.kernel_h * s.kernel_w, bytes = bit_bytes(s.in_channels);
  std::vector<int8_t> weights(static_cast<size_t>(s.out_channels * s.in_channels * taps));
  size_t at = 0;
  for (int64_t o = 0; o < s.out_channels; ++o) {
    for (int64_t c = 0; c < s.in_channels; ++c) {
      for (int64_t t = 0; t < taps; ++t)
        weights[at++] = (bits[(o * taps + t) * bytes + c / 8] >> c % 8 & 1) != 0 ? -1 : 1;
    }
  }
  return weights;
}

template <typename T>
std::vector<T> copied(const T* from, int64_t n) {
  return from == nullptr ? std::vector<T>() : std::vector<T>(from, from + n);
}

class BytesLayer final : public Conv {
 public:
  BytesLayer(const BinaryConvConfig& config, const BinaryConvWeights& weights, Isa isa)
      : config_(config),
        pixels_(config.shape.out_h() * config.shape.out_w()),
        bias_(copied(weights.bias, config.shape.out_channels)),
        threshold_(copied(weights.threshold, config.shape.out_channels)),
        flip_(copied(weights.flip, bit_bytes(config.shape.out_channels))),
        map_(config.scale_map && weights.threshold == nullptr) {
    const ConvShape& s = config.shape;
    ConvConfig codes;
    codes.shape = s;
    codes.shape.in_h += 2 * s.pad_h;
    codes.shape.in_w += 2 * s.pad_w;
    codes.shape.pad_h = codes.shape.pad_w = 0;
    codes.input = DataType::u8;
    codes.input_q = {1.0F, kZero};
    image_codes_ = codes.shape.in_h * codes.shape.in_w * s.in_channels;
    const std::vector<int8_t> unpacked = unpack_weights(s, weights.bits);
    const std::vector<float> ones(static_cast<size_t>(s.out_channels), 1.0F);
    sums_ = make_conv(codes, {.i8 = unpacked.data(), .scale = ones.data()}, isa);
    if (weights.threshold == nullptr && map_) scale_map_ = pack_scale_map(s, weights.scale);
    if (weights.threshold == nullptr && !map_) scale_ = copied(weights.scale, s.out_channels);
    chunk_ = std::max<int64_t>(1, kChunkBytes / (image_codes_ + image_sums() * 4));
  }

  size_t workspace_bytes(int64_t batch, int workers) const override {
    const int64_t images = std::min(batch, chunk_);
    return static_cast<size_t>(codes_bytes(images) + sums_bytes(images)) +
           sums_->workspace_bytes(images, workers);
  }

  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    const ConvShape& s = config_.shape;
    const int64_t in = s.in_h * s.in_w * bit_bytes(s.in_channels);
    const int64_t out = pixels_ * (gives_bits() ? bit_bytes(s.out_channels) : 4 * s.out_channels);
    const int64_t most = std::min(batch, chunk_);
    auto* codes = static_cast<uint8_t*>(workspace);
    for (int64_t first = 0; first < batch; first += chunk_) {
      const int64_t images = std::min(chunk_, batch - first);
      uint8_t* to = static_cast<uint8_t*>(y) + first * out;
      auto* sums = reinterpret_cast<float*>(gives_bits() ? codes + codes_bytes(most) : to);
      unpack(images, static_cast<const uint8_t*>(x) + first * in, codes, parallel);
      sums_->run(images, codes, nullptr, sums, codes + codes_bytes(most) + sums_bytes(most), parallel);
      const int64_t elements = first * image_sums();
      finish(images, sums, config_.residual ? static_cast<const float*>(residual) + elements : nullptr, to,
             parallel);
    }
  }

  std::string name() const override { return "binary_as_" + sums_->name(); }

 private:
  bool gives_bits() const { return !threshold_.empty(); }
  int64_t image_sums() const { return pixels_ * config_.shape.out_channels; }
  int64_t codes_bytes(int64_t images) const { return round_up(images * image_codes_, 64); }
  int64_t sums_bytes(int64_t images) const {
    return gives_bits() ? round_up(images * image_sums() * 4, 64) : 0;
  }

  /// Images with their borders.
  void unpack(int64_t images, const uint8_t* x, uint8_t* codes, const Parallel& parallel) const {
    const ConvShape& s = config_.shape;
    const int border = config_.padding == BinaryPadding::one ? kZero + 1 : kZero;
    const int64_t rows = s.in_h + 2 * s.pad_h, edge = s.pad_w * s.in_channels;
    const int64_t row_codes = s.in_w * s.in_channels + 2 * edge, bytes = bit_bytes(s.in_channels);
    worth_sharing(images * image_codes_, parallel).run(images * rows, [&](int64_t task, int) {
      uint8_t* to = codes + task * row_codes;
      const int64_t row = task % rows - s.pad_h;
      if (row < 0 || row >= s.in_h) {
        std::memset(to, border, static_cast<size_t>(row_codes));
        return;
      }
      std::memset(to, border, static_cast<size_t>(edge));
      std::memset(to + row_codes - edge, border, static_cast<size_t>(edge));
      to += edge;
      const uint8_t* from = x + (task / rows * s.in_h + row) * s.in_w * bytes;
      for (int64_t pixel = 0; pixel < s.in_w; ++pixel, from += bytes, to += s.in_channels) {
        int64_t c = 0;
        for (; c + 8 <= s.in_channels; c += 8) std::memcpy(to + c, &kCodes[from[c / 8]], 8);
        if (c < s.in_channels)
          std::memcpy(to + c, &kCodes[from[c / 8]], static_cast<size_t>(s.in_channels - c));
      }
    });
  }

  void finish(int64_t images, const float* sums, const float* residual, uint8_t* y,
              const Parallel& parallel) const {
    constexpr int64_t kRows = 16;
    const int64_t n = config_.shape.out_channels, rows = images * pixels_;
    worth_sharing(rows * n, parallel).run(ceil_div(rows, kRows), [&](int64_t task, int) {
      for (int64_t row = task * kRows; row < std::min(rows, (task + 1) * kRows); ++row) {
        if (gives_bits()) {
          finish_bits(sums + row * n, y + row * bit_bytes(n));
        } else {
          const float* scale = map_ ? scale_map_.as<float>() + row % pixels_ * n : scale_.data();
          finish_floats(sums + row * n, scale, residual == nullptr ? nullptr : residual + row * n,
                        reinterpret_cast<float*>(y) + row * n);
        }
      }
    });
  }

  void finish_bits(const float* sums, uint8_t* y) const {
    const int64_t n = config_.shape.out_channels;
    for (int64_t o = 0; o < n; o += 8) {
      unsigned byte = 0;
      for (int64_t i = o; i < std::min(n, o + 8); ++i) {
        const auto at = static_cast<size_t>(i);
        byte |= static_cast<unsigned>(static_cast<int32_t>(sums[i]) < threshold_[at]) << (i - o);
      }
      const unsigned used = n - o < 8 ? (1U << (n - o)) - 1U : 0xffU;
      if (!flip_.empty()) byte ^= flip_[static_cast<size_t>(o / 8)] & used;
      y[o / 8] = static_cast<uint8_t>(byte);
    }
  }

  /// y may be the sums.
  void finish_floats(const float* sums, const float* scale, const float* residual, float* y) const {
    const int64_t n = config_.shape.out_channels;
    const Clamp clamp = clamp_of(config_.activation);
    for (int64_t o = 0; o < n; ++o) y[o] = scale[o] * sums[o];
    if (!bias_.empty()) {
      for (int64_t o = 0; o < n; ++o) y[o] += bias_[static_cast<size_t>(o)];
    }
    if (residual != nullptr) {
      for (int64_t o = 0; o < n; ++o) y[o] += residual[o];
    }
    for (int64_t o = 0; o < n; ++o) {
      const float v = y[o] < clamp.low ? clamp.low : y[o];
      y[o] = v > clamp.high ? clamp.high : v;
    }
    apply_curve(curve_of(config_.activation), y, y, n);
  }

  BinaryConvConfig config_;
  int64_t pixels_, image_codes_ = 0, chunk_ = 1;
  std::unique_ptr<Conv> sums_;
  std::vector<float> scale_, bias_;
  std::vector<int32_t> threshold_;
  std::vector<uint8_t> flip_;
  bool map_;
  AlignedBuffer scale_map_;
};

}  // namespace

std::unique_ptr<Conv> make_binary_as_bytes(const BinaryConvConfig& config, const BinaryConvWeights& weights,
                                           Isa isa) {
  check_binary(config, weights);
  if (window_bytes(config.shape) * 8 > kMostWindow) return nullptr;
  return std::make_unique<BytesLayer>(config, weights, isa);
}

}  // namespace ulp::kernels
