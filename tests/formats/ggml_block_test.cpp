// Blocks of GGML, bit for bit those of the Python package `gguf` (tests/golden/make_gguf.py).
#include "ulp/formats/ggml_block.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"

namespace {

using namespace ulp::formats;

const nlohmann::json& golden() {
  static const auto read = nlohmann::json::parse(std::ifstream(ULP_SOURCE_DIR "/tests/golden/gguf.json"));
  return read;
}

std::vector<float> floats(const nlohmann::json& bits) {
  std::vector<float> values;
  for (const auto& one : bits) values.push_back(std::bit_cast<float>(one.get<uint32_t>()));
  return values;
}

TEST(GgmlBlock, CodesAreThoseOfGguf) {
  ASSERT_GT(golden().at("encoded").size(), 40U);
  for (const auto& one : golden().at("encoded")) {
    const std::vector<float> values = floats(one.at("bits"));
    for (const char* const name : {"Q4_0", "Q8_0"}) {
      const GgmlType& type = *find_ggml_type(name);
      std::vector<std::byte> blocks(static_cast<size_t>(type.bytes));
      encode_ggml(type, values, blocks);
      const auto expected = one.at(name).get<std::vector<uint8_t>>();
      for (size_t i = 0; i < blocks.size(); ++i)
        ASSERT_EQ(std::to_integer<uint8_t>(blocks[i]), expected[i])
            << name << " byte " << i << " of " << one.at("bits");
    }
  }
}

TEST(GgmlBlock, WhatIsDecodedIsWithinAStepOfWhatWasEncoded) {
  std::vector<float> values(64), again(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  for (const char* const name : {"Q4_0", "Q8_0"}) {
    const GgmlType& type = *find_ggml_type(name);
    std::vector<std::byte> blocks(static_cast<size_t>(2 * type.bytes));
    encode_ggml(type, values, blocks);
    decode_ggml(type, blocks, again);
    // Half a step of 1/8 or 1/127 of the largest, a whole one at the end that Q4_0 lacks, and fp16's rounding of the step.
    const float reach = type.bytes == 18 ? 1.0F / 8 * 1.01F : 0.5F / 127 + 1.0F / 2048;
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(again[i], values[i], reach) << name << ' ' << i;
  }
}

TEST(GgmlBlock, RefusesWhatItCannotDo) {
  const GgmlType &q4 = *find_ggml_type("Q4_0"), &q8 = *find_ggml_type("Q8_0"),
                 &q4_k = *find_ggml_type("Q4_K"), &f32 = *find_ggml_type("F32");
  std::vector<float> values(32, 1);
  std::vector<std::byte> blocks(34);
  EXPECT_THROW(encode_ggml(q4_k, values, blocks), ulp::Error);
  EXPECT_THROW(decode_ggml(f32, blocks, values), ulp::Error);
  EXPECT_THROW(encode_ggml(q4, values, blocks), ulp::Error) << "18 bytes, not 34";
  EXPECT_THROW(decode_ggml(q8, std::span(blocks).first(33), values), ulp::Error);
  EXPECT_THROW(encode_ggml(q8, std::span(values).first(31), blocks), ulp::Error);
  values[3] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(encode_ggml(q8, values, blocks), ulp::Error);
  values[3] = std::nanf("");
  EXPECT_THROW(encode_ggml(q8, values, blocks), ulp::Error);
  values[3] = 1e9F;
  EXPECT_THROW(encode_ggml(q8, values, blocks), ulp::Error) << "a scale beyond fp16";
  EXPECT_EQ(find_ggml_type("IQ1_S"), nullptr);
  EXPECT_EQ(find_ggml_type(19), nullptr);
  EXPECT_EQ(find_ggml_type(14), find_ggml_type("Q6_K"));
}

}  // namespace
