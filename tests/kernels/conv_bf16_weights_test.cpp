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

std::vector<float> result(const ConvConfig& config, const ConvWeights& weights, Isa isa) {
  const ConvShape& s = config.shape;
  std::vector<uint16_t> x(static_cast<size_t>(s.in_h * s.in_w * s.in_channels));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(0x3f80 + i % 64);
  std::vector<float> y(static_cast<size_t>(s.out_h() * s.out_w() * s.out_channels));
  const auto conv = make_conv(config, weights, isa);
  std::vector<std::byte> scratch(conv->workspace_bytes(1, 1) + 64);
  void* workspace = scratch.data();
  size_t room = scratch.size();
  std::align(64, room - 64, workspace, room);
  conv->run(1, x.data(), nullptr, y.data(), workspace, SerialParallel());
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

}  // namespace
}  // namespace ulp::kernels
