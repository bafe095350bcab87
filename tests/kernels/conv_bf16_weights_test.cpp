// bf16 weights pack as they are: the same bits as from f32 numbers that bf16 holds.
#include <gtest/gtest.h>

#include <cstring>

#include "ulp/kernels/conv/conv.h"

namespace ulp::kernels {
namespace {

struct Weights {
  std::vector<uint16_t> narrow;
  std::vector<float> wide;
  explicit Weights(size_t count) : narrow(count), wide(count) {
    for (size_t i = 0; i < count; ++i) {
      // Both signs, exponents around 1, every fraction; and a subnormal number.
      narrow[i] = static_cast<uint16_t>((i % 2) << 15 | (0x3c00 + i * 37 % 0x400));
      if (i % 17 == 0) narrow[i] = static_cast<uint16_t>(i % 127 + 1);
      const uint32_t bits = uint32_t{narrow[i]} << 16;
      std::memcpy(&wide[i], &bits, 4);
    }
  }
};

/// Of the images from `first` on.
std::vector<float> result(const ConvConfig& config, const ConvWeights& weights, Isa isa, int64_t first = 0,
                          int64_t batch = 1) {
  const ConvShape& s = config.shape;
  const int64_t image = s.in_h * s.in_w * s.in_channels;
  std::vector<uint16_t> x(static_cast<size_t>(batch * image));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<uint16_t>(0x3f80 + (i + static_cast<size_t>(first * image)) % 61);
  std::vector<float> y(static_cast<size_t>(batch * s.out_h() * s.out_w() * s.out_channels));
  const auto conv = make_conv(config, weights, isa);
  std::vector<std::byte> scratch(conv->workspace_bytes(batch, 1) + 64);
  void* workspace = scratch.data();
  size_t room = scratch.size();
  std::align(64, room - 64, workspace, room);
  conv->run(batch, x.data(), nullptr, y.data(), workspace, SerialParallel());
  return y;
}

TEST(ConvBf16Weights, GiveTheBitsOfTheSameNumbersInF32) {
  const ConvShape shapes[] = {
      {.in_h = 7, .in_w = 6, .in_channels = 24, .out_channels = 20, .kernel_h = 3, .kernel_w = 3},
      {.in_h = 9,
       .in_w = 9,
       .in_channels = 32,
       .out_channels = 32,
       .kernel_h = 3,
       .kernel_w = 3,
       .groups = 32},
      {.in_channels = 70, .out_channels = 33}};
  for (const ConvShape& shape : shapes) {
    ConvConfig config;
    config.shape = shape;
    config.input = DataType::bf16;
    const Weights weights(static_cast<size_t>(shape.out_channels * shape.in_channels / shape.groups *
                                              shape.kernel_h * shape.kernel_w));
    for (const Isa isa : available_isas()) {
      const std::vector<float> wide = result(config, {.f32 = weights.wide.data()}, isa);
      const std::vector<float> narrow = result(config, {.bf16 = weights.narrow.data()}, isa);
      EXPECT_EQ(std::memcmp(wide.data(), narrow.data(), wide.size() * sizeof(float)), 0)
          << to_string(isa) << ", groups " << shape.groups;
    }
  }
}

// Few rows widen weights as they read them, many rows widen them first.
TEST(ConvBf16Weights, FewAndManyRowsGiveTheSameBits) {
  ConvConfig config;
  config.shape = {.in_channels = 70, .out_channels = 83};
  config.input = DataType::bf16;
  const Weights weights(70 * 83);
  for (const Isa isa : available_isas()) {
    for (const int64_t rows : {2, 6, 7, 15, 28, 29, 57}) {
      const std::vector<float> all = result(config, {.bf16 = weights.narrow.data()}, isa, 0, rows);
      for (int64_t row = 0; row < rows; ++row) {
        const std::vector<float> one = result(config, {.bf16 = weights.narrow.data()}, isa, row);
        ASSERT_EQ(std::memcmp(one.data(), all.data() + row * 83, 83 * sizeof(float)), 0)
            << to_string(isa) << ", row " << row << " of " << rows;
      }
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
