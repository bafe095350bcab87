// What a convolution may be asked for: the kernels that are chosen, refusals, empty batches, workspace.
#include <gtest/gtest.h>

#include <limits>

#include "conv_shapes.h"
#include "helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/conv/conv.h"

namespace ulp::kernels {
namespace {

using test::conv_shape;

// A fast implementation that silently refused everything would pass every other test.
TEST(ConvChoice, EachInstructionSetUsesItsOwnKernels) {
  const std::vector<float> w(64 * 64 * 9), scale(64, 1.0F);
  const std::vector<int8_t> w8(64 * 64 * 9);
  ConvWeights weights;
  weights.f32 = w.data();
  weights.i8 = w8.data();
  weights.scale = scale.data();
  for (Isa isa : available_isas()) {
    const std::string word = to_string(isa);
    const auto name = [&](DataType type, int64_t groups, int64_t stride = 2) {
      ConvConfig config;
      config.shape = conv_shape(14, 64, 64, 3, stride, 1, 1, groups);
      config.input = config.output = type;
      return make_conv(config, weights, isa)->name();
    };
    EXPECT_EQ(name(DataType::u8, 1), "conv_u8_" + (isa == Isa::neon_bf16 ? "neon_i8mm" : word));
    if (isa == Isa::amx || isa == Isa::amx_emulated) {
      EXPECT_EQ(name(DataType::bf16, 1), "conv_bf16_" + word);
    }
    if (isa == Isa::avx2 || isa == Isa::avx512) {
      EXPECT_EQ(name(DataType::bf16, 1), "conv_bf16_" + word);
      EXPECT_EQ(name(DataType::f32, 1), "conv_f32_" + word);
    }
    if (word.starts_with("neon")) {
      EXPECT_EQ(name(DataType::bf16, 1), isa == Isa::neon_bf16 ? "conv_bf16_neon_bf16" : "conv_bf16_neon");
      EXPECT_EQ(name(DataType::f32, 1), "conv_f32_neon");
    }
    const std::string without_steps = name(DataType::u8, 1, 1);
    EXPECT_EQ(without_steps.find("winograd") != std::string::npos, isa == Isa::avx2) << without_steps;
    const bool plain = isa == Isa::portable;
    EXPECT_EQ(name(DataType::u8, 64).find("depthwise") == std::string::npos, plain);
    EXPECT_EQ(name(DataType::f32, 1).find("portable") != std::string::npos, plain);
  }
}

// 16 products for each square of 2 x 2 results, of 36; at the edges of 13 x 13 results, squares are not full.
TEST(ConvChoice, WinogradCountsTheProductsThatItDoes) {
  const std::vector<float> scale(64, 1.0F);
  const std::vector<int8_t> w8(64 * 64 * 9);
  ConvWeights weights;
  weights.i8 = w8.data();
  weights.scale = scale.data();
  for (Isa isa : available_isas()) {
    for (const int64_t size : {14, 13}) {
      ConvConfig config;
      config.shape = conv_shape(size, 64, 64, 3, 1, 1);
      config.input = config.output = DataType::u8;
      const auto layer = make_conv(config, weights, isa);
      const bool fewer = layer->name().find("winograd") != std::string::npos;
      const double products = fewer ? 16.0 * 49 / static_cast<double>(9 * size * size) : 1.0;
      EXPECT_DOUBLE_EQ(layer->density(1).products, products) << layer->name();
    }
  }
}

ConvConfig good_config() {
  ConvConfig config;
  config.shape = conv_shape(8, 4, 4, 3, 1, 1);
  return config;
}

void expect_refused(const ConvConfig& config, const ConvWeights& weights, const char* word) {
  try {
    make_conv(config, weights, Isa::portable);
    ADD_FAILURE() << "accepted; expected an error about " << word;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(ConvErrors, BadShapesAndTypesAreRefused) {
  const std::vector<float> w(4 * 4 * 9, 0.5F), scale(4, 0.1F),
      bad_scale(4, std::numeric_limits<float>::infinity());
  const std::vector<int8_t> w8(4 * 4 * 9, 1);
  ConvWeights weights;
  weights.f32 = w.data();
  EXPECT_NO_THROW(make_conv(good_config(), weights, Isa::portable));
  ConvConfig config = good_config();
  config.shape.stride_h = 0;
  expect_refused(config, weights, "stride_h");
  config = good_config();
  config.shape.groups = 3;
  expect_refused(config, weights, "groups");
  config = good_config();
  config.shape.in_h = 1, config.shape.pad_h = 0, config.shape.stride_h = 2;
  expect_refused(config, weights, "fit");
  config = good_config();
  config.output = DataType::u8;
  expect_refused(config, weights, "types");
  config = good_config();
  config.input = config.output = DataType::u8;
  expect_refused(config, weights, "i8 weights");
  weights.i8 = w8.data();
  weights.scale = bad_scale.data();
  expect_refused(config, weights, "multiplier");
  weights.scale = scale.data();
  config.input_q.scale = 0;
  expect_refused(config, weights, "input scale");
  config.input_q = {1.0F, 256};
  expect_refused(config, weights, "zero point");
}

TEST(ConvErrors, AnEmptyBatchIsNoWork) {
  const std::vector<float> w(64 * 64 * 9), scale(64, 1.0F);
  const std::vector<int8_t> w8(64 * 64 * 9);
  ConvWeights weights;
  weights.f32 = w.data();
  weights.i8 = w8.data();
  weights.scale = scale.data();
  for (Isa isa : available_isas()) {
    for (ConvShape shape : {conv_shape(4, 64, 64, 3, 1, 1), conv_shape(4, 64, 64, 1, 1, 0),
                            conv_shape(4, 64, 64, 3, 1, 1, 1, 64)}) {
      ConvConfig config;
      config.shape = shape;
      config.input = config.output = DataType::u8;
      std::vector<uint8_t> x(4 * 4 * 64, 1), y(4 * 4 * 64, 77);
      const auto layer = make_conv(config, weights, isa);
      std::vector<uint8_t> workspace(layer->workspace_bytes(1, 1) + 64);
      layer->run(0, x.data(), nullptr, y.data(), workspace.data(), SerialParallel());
      EXPECT_EQ(y, std::vector<uint8_t>(y.size(), 77)) << to_string(isa);
    }
  }
}

// The engine sizes its workspace for the largest batch it was planned for.
TEST(ConvWorkspace, GrowsWithTheBatchAndTheWorkers) {
  const std::vector<float> w(64 * 64 * 9), scale(64, 1.0F);
  const std::vector<int8_t> w8(64 * 64 * 9);
  ConvWeights weights;
  weights.f32 = w.data();
  weights.i8 = w8.data();
  weights.scale = scale.data();
  for (Isa isa : available_isas()) {
    ConvConfig config;
    config.shape = conv_shape(60, 64, 64, 3, 1, 1);
    config.input = config.output = DataType::u8;
    const auto conv = make_conv(config, weights, isa);
    size_t last = 0;
    for (int64_t batch : {1, 2, 7, 64}) {
      EXPECT_GE(conv->workspace_bytes(batch, 2), last);
      last = conv->workspace_bytes(batch, 2);
      EXPECT_GE(last, conv->workspace_bytes(batch, 1));
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
