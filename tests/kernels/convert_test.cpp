// Bulk conversions on every instruction set against the scalar definitions of ulp/formats: the same bits.
#include "ulp/kernels/convert/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/convert/convert_lanes.h"

namespace ulp::kernels {
namespace {

using test::kInf;
using test::kSerial;

using formats::BlockFormat;
using formats::Cast;
using formats::Format;
using formats::Overflow;
using formats::Rounding;

constexpr Rounding kRoundings[] = {Rounding::nearest_even, Rounding::toward_zero, Rounding::stochastic};
constexpr formats::RandomKey kKey{0xfeedface12345678, 9};

bool is_target(const Format& format) {
  return format.bits() <= 19;
}

// Around every code's value (every 13th of 16 bits and more), around the middle to the next one, random bit
// patterns, and the special ones.
std::vector<float> inputs(const Format& format) {
  std::vector<float> out = {0.0F,      -0.0F,      kInf,      -kInf,         std::nanf(""), -std::nanf(""),
                            0x1p-149F, -0x1p-149F, 0x1p-126F, 3.4028235e38F, -3.4028235e38F};
  const auto around = [&](double x) {
    const auto centre = static_cast<float>(x);
    for (float v : {std::nextafter(centre, 0.0F), centre, std::nextafter(centre, kInf)}) {
      out.push_back(v);
      out.push_back(-v);
    }
  };
  const uint64_t step = format.bits() > 8 ? 13 : 1;
  for (uint64_t code = 0; code <= format.max_code(); code += step) {
    const double value = decode(format, code);
    around(value);
    around((value + (code < format.max_code() ? decode(format, code + 1) : value * 1.125)) / 2);
  }
  for (double x : {1.0, 0.3, 1.07, 2.0, 1e4}) around(format.max() * x);
  uint32_t state = 7;
  for (int i = 0; i < 20000; ++i) {
    state = state * 1664525u + 1013904223u;
    out.push_back(std::bit_cast<float>(state));
  }
  for (int exponent = -149; exponent < 128; ++exponent) around(std::ldexp(1.3, exponent));
  return out;
}

Cast scalar_cast(const ArrayCast& cast, size_t i) {
  return {cast.rounding, cast.overflow, formats::random_bits(cast.key, cast.first + i)};
}

std::vector<uint64_t> reference(const Format& format, const std::vector<float>& x, const ArrayCast& cast) {
  std::vector<uint64_t> out;
  for (size_t i = 0; i < x.size(); ++i) out.push_back(formats::encode(format, x[i], scalar_cast(cast, i)));
  return out;
}

template <typename Code>
void expect_encoded(const Format& format, const std::vector<float>& x, const std::vector<uint64_t>& expected,
                    const ArrayCast& cast, Isa isa) {
  const auto n = static_cast<int64_t>(x.size());
  test::Guarded<Code> codes(n);
  encode(format, x.data(), codes.data(), n, cast, isa, kSerial);
  EXPECT_TRUE(codes.intact());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(codes.data()[i], expected[i])
        << format.name << " " << x[i] << " at " << i << " rounding " << static_cast<int>(cast.rounding)
        << "; " << test::repeat_command();
  }
}

class ConvertArrays : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(All, ConvertArrays, ::testing::ValuesIn(available_isas()), test::isa_name);

TEST_P(ConvertArrays, EncodeAndRoundAreTheScalarDefinition) {
  for (const Format& format : formats::all()) {
    if (!is_target(format)) continue;
    const std::vector<float> x = inputs(format);
    const auto n = static_cast<int64_t>(x.size());
    for (Rounding rounding : kRoundings) {
      const ArrayCast cast{.rounding = rounding, .key = kKey, .first = 21};
      const std::vector<uint64_t> expected = reference(format, x, cast);
      if (format.bits() <= 8) {
        expect_encoded<uint8_t>(format, x, expected, cast, GetParam());
      } else if (format.bits() <= 16) {
        expect_encoded<uint16_t>(format, x, expected, cast, GetParam());
      }
      test::Guarded<float> rounded(n);
      std::copy(x.begin(), x.end(), rounded.data());
      round_to_format(format, rounded.data(), rounded.data(), n, cast, GetParam(), kSerial);
      EXPECT_TRUE(rounded.intact());
      for (size_t i = 0; i < x.size(); ++i) {
        const auto value = static_cast<float>(formats::decode(format, expected[i]));
        ASSERT_EQ(std::bit_cast<uint32_t>(rounded.data()[i]), std::bit_cast<uint32_t>(value))
            << format.name << " " << x[i] << " rounding " << static_cast<int>(rounding);
      }
    }
  }
}

template <typename Code>
void expect_decoded(const Format& format, Isa isa) {
  const int64_t n = int64_t{1} << format.bits();
  std::vector<Code> codes(static_cast<size_t>(n));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<Code>(i);
  test::Guarded<float> values(n);
  decode(format, codes.data(), values.data(), n, isa, kSerial);
  EXPECT_TRUE(values.intact());
  for (uint64_t i = 0; i < codes.size(); ++i) {
    const auto value = static_cast<float>(formats::decode(format, i));
    ASSERT_EQ(std::bit_cast<uint32_t>(values.data()[i]), std::bit_cast<uint32_t>(value))
        << format.name << " " << i;
  }
}

TEST_P(ConvertArrays, EveryCodeDecodes) {
  for (const Format& format : formats::all()) {
    if (format.bits() <= 8) {
      expect_decoded<uint8_t>(format, GetParam());
    } else if (format.bits() <= 16) {
      expect_decoded<uint16_t>(format, GetParam());
    }
  }
}

TEST_P(ConvertArrays, OverflowRulesCanBeReplaced) {
  const std::vector<float> x = {1, 1e30F, -1e30F, kInf, -kInf};
  for (const char* name : {"fp16", "fp8_e4m3fn", "fp8_e5m2", "fp8_e5m2fnuz", "fp8_e4m3"}) {
    const Format& format = formats::find(name);
    for (Overflow rule : {Overflow::to_infinity, Overflow::saturate, Overflow::to_nan}) {
      if (rule == Overflow::to_infinity && !format.has_infinity()) continue;
      const ArrayCast cast{.overflow = rule};
      const std::vector<uint64_t> expected = reference(format, x, cast);
      format.bits() == 8 ? expect_encoded<uint8_t>(format, x, expected, cast, GetParam())
                         : expect_encoded<uint16_t>(format, x, expected, cast, GetParam());
    }
  }
}

TEST_P(ConvertArrays, AnySplitAndAnyPartGiveTheSameBits) {
  constexpr int64_t kCount = 3 * 16384 + 77;
  const std::vector<float> x = test::random_floats(kCount, 5, -3, 3);
  const Format& bf16 = formats::find("bf16");
  const ArrayCast cast{.rounding = Rounding::stochastic, .key = kKey};
  std::vector<uint16_t> whole(x.size()), threaded(x.size()), parts(x.size());
  encode(bf16, x.data(), whole.data(), kCount, cast, GetParam(), kSerial);
  for (int workers : {2, 3, 5}) {
    encode(bf16, x.data(), threaded.data(), kCount, cast, GetParam(), test::ThreadParallel(workers));
    EXPECT_EQ(threaded, whole) << workers;
  }
  for (int64_t begin = 0, size = 1; begin < kCount; begin += size, size = size * 3 + 1) {
    ArrayCast part = cast;
    part.first = static_cast<uint64_t>(begin);
    encode(bf16, x.data() + begin, parts.data() + begin, std::min(size, kCount - begin), part, GetParam(),
           kSerial);
  }
  EXPECT_EQ(parts, whole);
}

// Blocks of ordinary, tiny, huge, zero and broken values; the last block is short.
std::vector<float> block_inputs() {
  std::vector<float> x = test::random_floats(32 * 40 + 19, 3, -1, 1);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t block = i / 32;
    if (block < 20) x[i] = std::ldexp(x[i], static_cast<int>(block) * 13 - 140);
    if (block == 20) x[i] = 0;
    if (block == 21) x[i] = std::ldexp(x[i], 128);
    if (block > 30) x[i] = std::ldexp(x[i], static_cast<int>(i % 9));
  }
  x[32 * 23 + 5] = kInf;
  x[32 * 24 + 20] = std::nanf("");
  x[32 * 25] = -0.0F;
  return x;
}

struct Blocks {
  std::vector<uint8_t> scales, codes;
  std::vector<float> values;
};

Blocks reference_blocks(const BlockFormat& format, const std::vector<float>& x, float tensor,
                        const ArrayCast& cast) {
  Blocks out;
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(format.size)) {
    const std::span<const float> part =
        std::span(x).subspan(begin, std::min<size_t>(x.size() - begin, static_cast<size_t>(format.size)));
    std::vector<Cast> casts;
    for (size_t i = 0; i < part.size(); ++i) casts.push_back(scalar_cast(cast, begin + i));
    const formats::Block block = quantize_block(format, part, tensor, casts);
    const std::vector<float> back = dequantize_block(format, block, tensor);
    out.scales.push_back(block.scale);
    out.codes.insert(out.codes.end(), block.codes.begin(), block.codes.end());
    out.values.insert(out.values.end(), back.begin(), back.end());
  }
  return out;
}

/// The table's, and some with other kinds of elements and other sizes.
std::vector<BlockFormat> block_formats() {
  std::vector<BlockFormat> out(formats::all_blocks().begin(), formats::all_blocks().end());
  out.push_back({"mxint8", "int8", "e8m0", 32});
  out.push_back({"int4 by 64", "int4", "e8m0", 64});
  out.push_back({"nvint4", "int4", "fp8_e4m3fn", 16, true});
  out.push_back({"binary by 8", "binary", "e8m0", 8});
  return out;
}

TEST_P(ConvertArrays, BlocksAreTheScalarDefinition) {
  const std::vector<float> x = block_inputs();
  const auto n = static_cast<int64_t>(x.size());
  for (const BlockFormat& format : block_formats()) {
    const float tensor = formats::tensor_scale(format, x);
    for (Rounding rounding : kRoundings) {
      SCOPED_TRACE(std::string(format.name) + " rounding " + std::to_string(static_cast<int>(rounding)));
      const ArrayCast cast{.rounding = rounding, .key = kKey, .first = 640};
      const Blocks expected = reference_blocks(format, x, tensor, cast);
      test::Guarded<uint8_t> scales(static_cast<int64_t>(expected.scales.size())), codes(n);
      test::Guarded<float> values(n);
      quantize_blocks(format, x.data(), tensor, scales.data(), codes.data(), n, cast, GetParam(), kSerial);
      dequantize_blocks(format, scales.data(), codes.data(), tensor, values.data(), n, GetParam(), kSerial);
      EXPECT_TRUE(scales.intact() && codes.intact() && values.intact());
      EXPECT_EQ(scales.values(), expected.scales);
      EXPECT_EQ(codes.values(), expected.codes);
      for (size_t i = 0; i < x.size(); ++i) {
        const float got = values.data()[i], wanted = expected.values[i];
        ASSERT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted)))
            << i << ": " << got << " " << wanted;
      }
    }
  }
}

TEST_P(ConvertArrays, BlocksOfThreadsAreTheSame) {
  constexpr int64_t kCount = 2 * 16384 + 100;
  const std::vector<float> x = test::random_floats(kCount, 8, -3, 3);
  const ArrayCast cast{.rounding = Rounding::stochastic, .key = kKey};
  for (const BlockFormat& format : formats::all_blocks()) {
    std::vector<uint8_t> scales(static_cast<size_t>((kCount + format.size - 1) / format.size)),
        codes(x.size());
    std::vector<uint8_t> scales2(scales.size()), codes2(x.size());
    quantize_blocks(format, x.data(), 1, scales.data(), codes.data(), kCount, cast, GetParam(), kSerial);
    quantize_blocks(format, x.data(), 1, scales2.data(), codes2.data(), kCount, cast, GetParam(),
                    test::ThreadParallel(3));
    EXPECT_EQ(scales, scales2);
    EXPECT_EQ(codes, codes2);
  }
}

TEST(ConvertArraysErrors, NameTheFormat) {
  const float x = 1;
  float y = 0;
  uint8_t byte = 0;
  uint16_t word = 0;
  const auto encode8 = [&](const char* name) {
    encode(formats::find(name), &x, &byte, 1, {}, Isa::portable, kSerial);
  };
  EXPECT_THROW(encode8("fp16"), Error);
  EXPECT_THROW(encode(formats::find("int8"), &x, &word, 1, {}, Isa::portable, kSerial), Error);
  EXPECT_THROW(decode(formats::find("tf32"), &word, &y, 1, Isa::portable, kSerial), Error);
  EXPECT_THROW(decode(formats::find("bf16"), &byte, &y, 1, Isa::portable, kSerial), Error);
  for (const char* name : {"fp64", "fp32"}) {
    EXPECT_THROW(round_to_format(formats::find(name), &x, &y, 1, {}, Isa::portable, kSerial), Error) << name;
  }
  EXPECT_THROW(encode(formats::find("e4m3fn"), &x, &byte, 1, {.overflow = Overflow::to_infinity},
                      Isa::portable, kSerial),
               Error);
  EXPECT_THROW(
      quantize_blocks(formats::find_block("mxfp4"), &x, 2, &byte, &byte, 1, {}, Isa::portable, kSerial),
      Error);
  EXPECT_THROW(
      dequantize_blocks(formats::find_block("nvfp4"), &byte, &byte, 0, &y, 1, Isa::portable, kSerial), Error);
  for (const BlockFormat& bad :
       {BlockFormat{"odd", "fp4_e2m1", "e8m0", 24}, BlockFormat{"empty", "fp4_e2m1", "e8m0", 0},
        BlockFormat{"wide", "bf16", "e8m0", 32}, BlockFormat{"one level", "fp4_e2m1", "fp8_e4m3fn", 16},
        BlockFormat{"two levels", "fp4_e2m1", "e8m0", 16, true}}) {
    EXPECT_THROW(quantize_blocks(bad, &x, 1, &byte, &byte, 1, {}, Isa::portable, kSerial), Error) << bad.name;
    EXPECT_THROW(dequantize_blocks(bad, &byte, &byte, 1, &y, 1, Isa::portable, kSerial), Error) << bad.name;
  }
  try {
    encode8("tf32");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tf32"), std::string::npos);
  }
}

// The primitives for kernels that round as they go.
TEST(ConvertPrimitives, StochasticBf16AndFp16AreTheScalarDefinition) {
  for (const char* name : {"bf16", "fp16"}) {
    const Format& format = formats::find(name);
    const std::vector<float> x = inputs(format);
    for (size_t i = 0; i < x.size(); ++i) {
      const uint32_t random = i % 5 == 0 ? ~0U : formats::random_bits(kKey, i);
      const uint64_t expected = formats::encode(format, x[i], {Rounding::stochastic, {}, random});
      ASSERT_EQ(format.mantissa_bits == 7 ? stochastic_bf16(x[i], random) : stochastic_fp16(x[i], random),
                expected)
          << name << " " << x[i] << " " << random;
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
