// Binary layers against plain loops over +1 and -1, on every instruction set and split over threads.
#include <gtest/gtest.h>

#include <sstream>

#include "binary_reference.h"
#include "ulp/base/error.h"
#include "ulp/kernels/binary/binary_conv.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

std::vector<uint8_t> run(const Conv& conv, const BinaryData& data, const Parallel& parallel) {
  Guarded<uint8_t> y(data.output_bytes(), 16);
  const size_t bytes = conv.workspace_bytes(data.batch, parallel.workers());
  Workspace workspace(bytes + 1);
  std::memset(workspace.data(), 0x77, bytes + 1);
  conv.run(data.batch, data.x_bits.data(), data.ending.residual ? data.residual.data() : nullptr, y.data(),
           workspace.data(), parallel);
  EXPECT_TRUE(y.intact()) << conv.name();
  EXPECT_EQ(static_cast<uint8_t*>(workspace.data())[bytes], 0x77)
      << conv.name() << " wrote behind its workspace";
  return y.values();
}

std::string text_of(const BinaryData& data) {
  const ConvShape& s = data.config.shape;
  std::ostringstream out;
  out << data.batch << " x " << s.in_h << "x" << s.in_w << ", " << s.in_channels << " -> " << s.out_channels
      << ", kernel " << s.kernel_h << "x" << s.kernel_w << ", stride " << s.stride_h << "x" << s.stride_w
      << ", pad " << s.pad_h << "x" << s.pad_w
      << (data.config.padding == BinaryPadding::zero ? " of 0" : " of 1") << ", dilation " << s.dilation_h
      << "x" << s.dilation_w << ", bits " << data.ending.bits << ", map " << data.ending.map << "; "
      << repeat_command();
  return out.str();
}

void expect_plain(const BinaryConvConfig& config, const BinaryEnding& ending, int64_t batch) {
  const BinaryData data(config, ending, batch);
  const std::vector<uint8_t> expected = data.expected();
  for (const Isa isa : available_isas()) {
    const auto conv = make_binary_conv(data.config, data.weights(), isa);
    ASSERT_EQ(run(*conv, data, SerialParallel()), expected) << conv->name() << ": " << text_of(data);
    ASSERT_EQ(run(*conv, data, ThreadParallel(4)), expected)
        << conv->name() << ", 4 threads: " << text_of(data);
    const auto bytes = make_binary_as_bytes(data.config, data.weights(), isa);
    ASSERT_EQ(run(*bytes, data, ThreadParallel(2)), expected) << bytes->name() << ": " << text_of(data);
  }
}

const BinaryEnding kPlain{};
const BinaryEnding kBits{.bits = true, .flip = true};

BinaryConvConfig image(int64_t side, int64_t in, int64_t out, int64_t kernel, BinaryPadding padding,
                       int64_t stride = 1, int64_t dilation = 1) {
  BinaryConvConfig config;
  config.shape = {.in_h = side,
                  .in_w = side + 1,
                  .in_channels = in,
                  .out_channels = out,
                  .kernel_h = kernel,
                  .kernel_w = kernel,
                  .stride_h = stride,
                  .stride_w = stride,
                  .pad_h = kernel / 2 * dilation,
                  .pad_w = kernel / 2 * dilation,
                  .dilation_h = dilation,
                  .dilation_w = dilation};
  config.padding = padding;
  return config;
}

BinaryConvConfig linear(int64_t in, int64_t out) {
  BinaryConvConfig config;
  config.shape.in_channels = in;
  config.shape.out_channels = out;
  return config;
}

TEST(BinaryConv, ChannelsOfAllCounts) {
  for (const int64_t in : {1, 3, 7, 8, 9, 16, 63, 64, 65, 130}) {
    for (const int64_t out : {1, 9, 16, 17, 40}) {
      expect_plain(image(6, in, out, 3, BinaryPadding::one), kPlain, 2);
      expect_plain(image(6, in, out, 3, BinaryPadding::zero), kBits, 2);
    }
  }
}

TEST(BinaryConv, WindowsStridesAndDilations) {
  for (const BinaryPadding padding : {BinaryPadding::one, BinaryPadding::zero}) {
    for (const int64_t kernel : {1, 3, 5, 7}) {
      for (const int64_t stride : {1, 2, 3}) {
        for (const int64_t dilation : {1, 2}) {
          const BinaryConvConfig config = image(9, 20, 19, kernel, padding, stride, dilation);
          expect_plain(config, kPlain, 2);
          expect_plain(config, kBits, 2);
        }
      }
    }
  }
}

TEST(BinaryConv, PaddingBeyondTheImage) {
  // A window lies outside as a whole, and reaches over both borders.
  for (const BinaryPadding padding : {BinaryPadding::one, BinaryPadding::zero}) {
    BinaryConvConfig config = image(2, 12, 21, 3, padding);
    config.shape.pad_h = 5;
    config.shape.pad_w = 4;
    expect_plain(config, kPlain, 2);
    config = image(1, 9, 33, 5, padding);
    config.shape.kernel_h = 4;  // not the same on both sides
    config.shape.stride_w = 2;
    expect_plain(config, kBits, 3);
    config = image(3, 8, 16, 1, padding);
    config.shape.pad_h = 2;
    expect_plain(config, kPlain, 1);
  }
}

TEST(BinaryConv, LinearLayersOfAllNumbersOfRows) {
  for (int64_t rows = 0; rows <= 40; ++rows)
    expect_plain(linear(200, 70), rows % 2 == 0 ? kPlain : kBits, rows);
  for (const int64_t out : {1, 15, 16, 31, 33, 48, 64, 65, 100, 129, 160}) {
    for (const int64_t rows : {1, 2, 3, 8}) {
      expect_plain(linear(64, out), kPlain, rows);
      expect_plain(linear(1000, out), kBits, rows);
    }
  }
}

TEST(BinaryConv, EveryWayToEnd) {
  for (const Activation activation : {Activation::none, Activation::relu, Activation::relu6, Activation::gelu,
                                      Activation::hardswish, Activation::silu}) {
    for (int mask = 0; mask < 8; ++mask) {
      const BinaryEnding ending{.bias = (mask & 1) != 0,
                                .residual = (mask & 2) != 0,
                                .map = (mask & 4) != 0,
                                .activation = activation};
      expect_plain(image(5, 24, 37, 3, BinaryPadding::zero), ending, 2);
      expect_plain(image(4, 24, 21, 1, BinaryPadding::one), ending, 3);  // pixels of several images in a tile
      expect_plain(linear(50, 19), ending, 7);
    }
  }
  expect_plain(image(5, 24, 37, 3, BinaryPadding::zero), {.bits = true}, 2);
}

TEST(BinaryConv, LongSums) {
  // Counts of more than 16 bits, in lanes that are all alike: the largest sum is K itself.
  expect_plain(linear(70000, 17), kPlain, 3);
  const BinaryData data(linear(70000, 3), kPlain, 1);
  const std::vector<uint8_t> none(static_cast<size_t>(bit_bytes(70000)), 0);
  std::vector<uint8_t> all(none.size() * 3, 0xff);
  const std::vector<float> one(3, 1.0F);
  for (const Isa isa : available_isas()) {
    const auto conv = make_binary_conv(linear(70000, 3), {.bits = all.data(), .scale = one.data()}, isa);
    std::vector<float> y(3);
    Workspace workspace(conv->workspace_bytes(1, 1));
    conv->run(1, none.data(), nullptr, y.data(), workspace.data(), SerialParallel());
    EXPECT_EQ(y, std::vector<float>(3, -70000.0F)) << conv->name();
  }
}

TEST(BinaryConv, TasksOfManyRowsAndOfPartsOfTheOutputsJoinUp) {
  expect_plain(linear(1024, 500), kBits, 3);
  expect_plain(linear(256, 64), kPlain, 1500);
  expect_plain(image(40, 64, 48, 3, BinaryPadding::zero), kBits, 1);
}

TEST(BinaryConv, WorkspaceGrowsWithRowsAndWorkers) {
  const BinaryData data(image(9, 20, 19, 3, BinaryPadding::one), kPlain, 1);
  for (const Isa isa : available_isas()) {
    const auto conv = make_binary_conv(data.config, data.weights(), isa);
    for (const int64_t rows : {1, 5, 700}) {
      EXPECT_LE(conv->workspace_bytes(rows, 1), conv->workspace_bytes(rows + 1, 1));
      EXPECT_LE(conv->workspace_bytes(rows, 1), conv->workspace_bytes(rows, 2));
    }
  }
}

TEST(BinaryConv, BytesComeInPieces) {
  // More than fits at a time, of images and of rows.
  expect_plain(image(60, 30, 20, 3, BinaryPadding::one), kBits, 9);
  expect_plain(linear(3000, 9), kPlain, 900);
  EXPECT_EQ(make_binary_as_bytes(linear((1 << 24) + 8, 1), BinaryData(linear(8, 1), kPlain, 1).weights(),
                                 Isa::portable),
            nullptr);
}

TEST(BinaryConv, WhatItCannotComputeIsAnError) {
  const std::vector<uint8_t> bits(1000, 0);
  const std::vector<float> scale(1000, 1.0F);
  const std::vector<int32_t> threshold(1000, 0);
  const BinaryConvWeights good{.bits = bits.data(), .scale = scale.data()};
  const auto expect_refused = [&](const BinaryConvConfig& config, const BinaryConvWeights& weights,
                                  const char* message) {
    try {
      make_binary_conv(config, weights, Isa::portable);
      ADD_FAILURE() << message;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  };
  BinaryConvConfig config = linear(16, 16);
  EXPECT_NO_THROW(make_binary_conv(config, good, Isa::portable));
  expect_refused(config, {.scale = scale.data()}, "expected weights");
  expect_refused(config, {.bits = bits.data()}, "neither");
  expect_refused(config, {.bits = bits.data(), .scale = scale.data(), .threshold = threshold.data()}, "both");
  expect_refused(config, {.bits = bits.data(), .bias = scale.data(), .threshold = threshold.data()},
                 "no bias");
  config.shape.groups = 2;
  expect_refused(config, good, "no groups");
  config = linear(16, 16);
  config.shape.kernel_h = 2;
  expect_refused(config, good, "fit into the padded image");
  config = linear(0, 16);
  expect_refused(config, good, "in_channels");
  config = linear(int64_t{1} << 28, 1);
  config.shape.in_h = config.shape.kernel_h = 5;
  expect_refused(config, good, "channels in a window");
}

TEST(BinaryConv, SaysHowMuchMemoryItTakes) {
  // Weights, twice: a nibble a byte. Nine kinds of borders.
  const BinaryConvConfig config = image(9, 64, 64, 3, BinaryPadding::zero);
  EXPECT_GE(binary_conv_bytes(config), 64 * 9 * 8 * 2 + 9 * 64 * 4);
  EXPECT_LE(binary_conv_bytes(config), 32 * 1024);
}

}  // namespace
}  // namespace ulp::kernels
