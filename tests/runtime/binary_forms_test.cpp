// Binary layers over bits or bytes: what is measured and what is said of it.
#include "ulp/runtime/ops/binary_forms.h"

#include <gtest/gtest.h>

#include <vector>

#include "support.h"

namespace ulp::runtime {
namespace {

/// One that this machine has.
kernels::Isa some_isa() {
  return kernels::available_isas().front();
}

struct Layer {
  kernels::BinaryConvConfig config;
  std::vector<uint8_t> bits;
  std::vector<float> scale;
  std::vector<int32_t> threshold;

  explicit Layer(int64_t channels) : scale(40, 0.5F), threshold(40, 3) {
    config.shape = {
        .in_h = 6, .in_w = 6, .in_channels = channels, .out_channels = 40, .kernel_h = 3, .kernel_w = 3};
    testing::Random random(1);
    bits.resize(static_cast<size_t>(40 * 9 * kernels::bit_bytes(channels)));
    for (uint8_t& byte : bits) byte = static_cast<uint8_t>(random.integer(0, 255));
  }
  kernels::BinaryConvWeights weights(bool to_bits) const {
    if (to_bits) return {.bits = bits.data(), .threshold = threshold.data()};
    return {.bits = bits.data(), .scale = scale.data()};
  }
};

TEST(BinaryForms, AreMeasuredOnRequestAlone) {
  const Layer layer(64);
  for (const bool to_bits : {false, true}) {
    const LayerForm unasked =
        make_binary_form(layer.config, layer.weights(to_bits), some_isa(), {}, {1, 4}, false);
    EXPECT_EQ(unasked.note, "");
    EXPECT_TRUE(unasked.layer->name().starts_with("binary_conv_")) << unasked.layer->name();
    const LayerForm asked =
        make_binary_form(layer.config, layer.weights(to_bits), some_isa(), {}, {1, 4}, true);
    EXPECT_NE(asked.note.find(" ms by bits, "), std::string::npos) << asked.note;
    EXPECT_NE(asked.note.find(" ms by bytes at 4 items"), std::string::npos) << asked.note;
    const bool bytes = asked.note.starts_with("bytes: ");
    EXPECT_TRUE(asked.layer->name().starts_with(bytes ? "binary_as_conv_" : "binary_conv_"))
        << asked.layer->name();
  }
}

TEST(BinaryForms, WhatThereIsNoMemoryForStaysBits) {
  const Layer layer(64);
  PackRules rules;
  rules.measured = std::make_shared<TimingCache>("", size_t{1000});
  const LayerForm form =
      make_binary_form(layer.config, layer.weights(false), some_isa(), rules, {1, 4}, true);
  EXPECT_EQ(form.note, "bits: too large to measure");
  EXPECT_TRUE(form.layer->name().starts_with("binary_conv_"));
}

}  // namespace
}  // namespace ulp::runtime
