// 8-bit and 4-bit moments: every code against the definition of its map, the nearest code by comparing all of
// them, and updates against those of fp32 moments, on every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/training/optimizer.h"

namespace ulp::kernels::test {
namespace {

struct Map {
  const char* name;
  MomentStore store;
  MomentKind kind;
};
constexpr Map kMaps[] = {{"int8 mean", MomentStore::int8, MomentKind::mean},
                         {"int8 square", MomentStore::int8, MomentKind::square},
                         {"int4 mean", MomentStore::int4, MomentKind::mean},
                         {"int4 square", MomentStore::int4, MomentKind::square}};

int code_count(const Map& map) {
  return map.store == MomentStore::int8 ? 256 : 16;
}

/// The definition in double: midpoints of equal parts of [0.1, 1], decade by decade, 0 and 1; squares in 8
/// bits have equal parts of octaves from 1 downwards, 16 of the first eight and 8 of the others.
std::vector<double> defined_values(const Map& map) {
  std::vector<double> values;
  if (map.store == MomentStore::int8 && map.kind == MomentKind::square) {
    values = {0, 1};
    for (int octave = 0; values.size() < 256; ++octave) {
      const int parts = octave < 8 ? 16 : 8;
      for (int part = parts - 1; part >= 0 && values.size() < 256; --part)
        values.push_back(std::ldexp(1 + part / static_cast<double>(parts), -octave - 1));
    }
    std::ranges::sort(values);
    return values;
  }
  if (map.store == MomentStore::int4 && map.kind == MomentKind::square) {
    for (int i = 1; i <= 16; ++i) values.push_back(i / 16.0);
    return values;
  }
  const int decades = map.store == MomentStore::int8 ? 7 : 3;
  const bool both = map.kind == MomentKind::mean;
  values = {0, 1};
  for (int i = 0; i < decades; ++i) {
    const int parts = (both ? 1 : 2) << i;
    for (int part = 0; part < parts; ++part) {
      const double value = std::pow(10.0, i + 1 - decades) * (0.1 + 0.9 * (part + 0.5) / parts);
      values.push_back(value);
      if (both) values.push_back(-value);
    }
  }
  std::ranges::sort(values);
  return values;
}

/// An array of moments in blocks, with canaries.
struct Stored {
  Stored(const Map& map, int64_t n)
      : map(map),
        size(n),
        codes(moment_bytes(map.store, n)),
        absmax((n + moment_block(map.store) - 1) / moment_block(map.store)) {}
  int code(int64_t i) {
    if (map.store == MomentStore::int8) return codes.data()[i];
    return codes.data()[i / 2] >> (i % 2 * 4) & 15;
  }
  void write(const std::vector<float>& values, Isa isa, const Parallel& parallel = SerialParallel()) {
    store_moments(map.store, map.kind, values.data(), size, codes.data(), absmax.data(), isa, parallel);
    ASSERT_TRUE(codes.intact() && absmax.intact());
  }
  std::vector<float> read(Isa isa, const Parallel& parallel = SerialParallel()) {
    Guarded<float> wide(size);
    load_moments(map.store, map.kind, codes.data(), absmax.data(), size, wide.data(), isa, parallel);
    EXPECT_TRUE(wide.intact());
    return wide.values();
  }
  bool equal(Stored& other) {
    return codes.values() == other.codes.values() &&
           std::memcmp(absmax.data(), other.absmax.data(), absmax.values().size() * sizeof(float)) == 0;
  }
  Map map;
  int64_t size;
  Guarded<uint8_t> codes;
  Guarded<float> absmax;
};

/// The value of every code of a block whose absmax is 1.
std::vector<float> read_all_codes(const Map& map, Isa isa) {
  Stored stored(map, code_count(map));
  for (int code = 0; code < code_count(map); ++code) {
    if (map.store == MomentStore::int8) {
      stored.codes.data()[code] = static_cast<uint8_t>(code);
    } else {
      uint8_t& pair = stored.codes.data()[code / 2];
      pair = static_cast<uint8_t>(code % 2 == 0 ? code : pair | code << 4);
    }
  }
  stored.absmax.data()[0] = 1;
  return stored.read(isa);
}

/// Magnitudes over all decades, exact ones of codes and their neighbours, middles between codes, zeros.
std::vector<float> moments_of(const Map& map, int64_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values;
  const std::vector<double> defined = defined_values(map);
  for (int64_t i = 0; i < n; ++i) {
    const double spread = std::exp2(-static_cast<double>(engine() % 26000) / 1000);
    const size_t code = engine() % (defined.size() - 1);
    double value = spread;
    if (engine() % 4 == 0) value = defined[code];
    if (engine() % 8 == 0) value = (defined[code] + defined[code + 1]) / 2;
    if (engine() % 64 == 0) value = 0;
    if (map.kind == MomentKind::mean && engine() % 2 == 0) value = -value;
    values.push_back(static_cast<float>(map.kind == MomentKind::mean ? value : std::fabs(value)));
  }
  return values;
}

class MomentBlocks : public ::testing::TestWithParam<Isa> {};

TEST_P(MomentBlocks, EveryCodeHasTheValueOfItsMap) {
  for (const Map& map : kMaps) {
    const std::vector<double> defined = defined_values(map);
    const std::vector<float> values = read_all_codes(map, GetParam());
    ASSERT_EQ(defined.size(), values.size()) << map.name;
    for (size_t code = 0; code < values.size(); ++code) {
      // Two factors and a sum round.
      ASSERT_NEAR(static_cast<double>(values[code]), defined[code], std::fabs(defined[code]) * 0x1p-22)
          << map.name << " code " << code << "; " << repeat_command();
    }
    EXPECT_EQ(values.back(), 1.0F) << map.name;
  }
}

TEST_P(MomentBlocks, TheCodeIsThatOfTheNearestValue) {
  for (const Map& map : kMaps) {
    const std::vector<float> values = read_all_codes(map, GetParam());
    std::vector<float> moments = moments_of(map, 40 * 256 + 77, 11);
    for (size_t i = 0; i < moments.size(); i += 128) moments[i] = 1;  // so that absmax is
    Stored stored(map, static_cast<int64_t>(moments.size()));
    stored.write(moments, GetParam());
    for (size_t i = 0; i < moments.size(); ++i) {
      const auto distance = [&](size_t code) {
        return std::fabs(static_cast<double>(moments[i]) - static_cast<double>(values[code]));
      };
      size_t nearest = 0;
      for (size_t code = 1; code < values.size(); ++code)
        if (distance(code) < distance(nearest)) nearest = code;
      const bool eight = map.store == MomentStore::int8, square = map.kind == MomentKind::square;
      const bool keeps_sign = eight && !square && moments[i] < 0 && values[nearest] == 0;
      if (keeps_sign) --nearest;
      const bool stays = eight && square && moments[i] > 0 && values[nearest] == 0;
      if (stays) nearest = 1;
      const auto got = static_cast<size_t>(stored.code(static_cast<int64_t>(i)));
      // In the middle between two codes the roundings on the way there decide.
      const double slack = std::fabs(static_cast<double>(moments[i])) * 0x1p-20;
      ASSERT_TRUE(got == nearest || (!keeps_sign && !stays && distance(got) <= distance(nearest) + slack))
          << map.name << ": " << moments[i] << " became code " << got << ", not " << nearest << "; "
          << repeat_command();
    }
  }
}

TEST_P(MomentBlocks, EveryInstructionSetAndNumberOfThreadsGivesTheSameBits) {
  for (const Map& map : kMaps) {
    for (const int64_t size : {1, 2, 7, 127, 128, 129, 255, 256, 257, 1000, 40001}) {
      std::vector<float> moments = moments_of(map, size, 23);
      for (float& moment : moments) moment *= 3.7e-5F;
      Stored plain(map, size), own(map, size);
      plain.write(moments, Isa::portable);
      own.write(moments, GetParam(), ThreadParallel(3));
      ASSERT_TRUE(plain.equal(own)) << map.name << " size " << size << "; " << repeat_command();
      const std::vector<float> expected = plain.read(Isa::portable);
      const std::vector<float> got = own.read(GetParam(), ThreadParallel(3));
      ASSERT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0)
          << map.name << " size " << size << "; " << repeat_command();
    }
  }
}

TEST_P(MomentBlocks, ANegativeMomentKeepsItsSignInEightBitsOnly) {
  const std::vector<float> moments = {1, -1e-9F, 1e-9F, -0.0F, 0, -1e-30F};
  Stored eight(kMaps[0], 6), four(kMaps[2], 6);
  eight.write(moments, GetParam());
  four.write(moments, GetParam());
  const std::vector<float> in_eight = eight.read(GetParam()), in_four = four.read(GetParam());
  EXPECT_NEAR(in_eight[1], -5.5e-7F, 1e-12F);
  EXPECT_EQ(in_eight[5], in_eight[1]);
  for (const size_t i : {2U, 3U, 4U}) EXPECT_EQ(in_eight[i], 0.0F) << i;
  for (size_t i = 1; i < 6; ++i) EXPECT_EQ(in_four[i], 0.0F) << i;
}

/// Whatever is beside them: a step is a first moment over the root of the second.
TEST_P(MomentBlocks, SquaresAboveZeroStayAboveZeroAndZerosStay) {
  for (const float largest : {3e38F, 1.0F, 1e-20F, 0x1p-100F, 0x1p-101F, 0x1p-126F, bits_to_float(1)}) {
    for (const size_t map : {1U, 3U}) {
      std::vector<float> moments = {largest};
      for (const float small : {0x1p-26F, 1e-9F, 1e-15F, 1e-30F, 0x1p-126F, bits_to_float(1)})
        if (small <= largest) moments.push_back(small);
      const size_t zeros = moments.size();
      for (const float zero : {0.0F, -0.0F}) moments.push_back(zero);
      Stored stored(kMaps[map], static_cast<int64_t>(moments.size()));
      stored.write(moments, GetParam());
      const std::vector<float> read = stored.read(GetParam());
      for (size_t i = 0; i < zeros; ++i) ASSERT_GT(read[i], 0.0F) << largest << ' ' << moments[i];
      if (kMaps[map].store == MomentStore::int4) continue;  // no zero
      for (size_t i = zeros; i < read.size(); ++i) ASSERT_EQ(read[i], 0.0F) << largest;
    }
  }
}

TEST_P(MomentBlocks, SquaresIn8BitsAreASixteenthOfThemselvesOffAtMost) {
  std::mt19937 engine(5);
  std::vector<float> moments(256 * 40 + 9);
  for (float& moment : moments)
    moment = 3e-7F * std::exp2(-static_cast<float>(engine() % 23650) / 1000);  // to 2^-24 * 1.25 and a little
  for (size_t i = 0; i < moments.size(); i += 256) moments[i] = 3e-7F;
  Stored stored(kMaps[1], static_cast<int64_t>(moments.size()));
  stored.write(moments, GetParam());
  const std::vector<float> read = stored.read(GetParam());
  for (size_t i = 0; i < read.size(); ++i) {
    const float share = moments[i] / 3e-7F, part = share > 0x1p-8F ? 32 : 16;
    ASSERT_LE(std::fabs(read[i] - moments[i]), moments[i] / part * 1.001F)
        << share << "; " << repeat_command();
  }
}

TEST_P(MomentBlocks, TheLargestMagnitudeIsKeptAndTheMostNegativeNearlySo) {
  Stored stored(kMaps[0], 512);
  std::vector<float> moments(512, 0.01F);
  moments[3] = 0.7F;
  moments[300] = -0.7F;
  stored.write(moments, GetParam());
  const std::vector<float> read = stored.read(GetParam());
  EXPECT_EQ(read[3], 0.7F);
  EXPECT_NEAR(read[300], -0.7F * 0.99296875F, 1e-7F);  // there is no code for -1
}

TEST_P(MomentBlocks, ABlockWithANumberThatIsNotFiniteIsNaNAndOthersAreNot) {
  for (const Map& map : kMaps) {
    for (const float bad : {INFINITY, std::nanf("")}) {
      const int64_t block = moment_block(map.store);
      std::vector<float> moments(static_cast<size_t>(3 * block - 5), 0.5F);
      moments[static_cast<size_t>(block) + 17] = bad;
      Stored stored(map, static_cast<int64_t>(moments.size()));
      stored.write(moments, GetParam());
      const std::vector<float> read = stored.read(GetParam());
      for (size_t i = 0; i < read.size(); ++i) {
        const bool in_it = static_cast<int64_t>(i) / block == 1;
        ASSERT_EQ(std::isnan(read[i]), in_it) << map.name << ' ' << i << "; " << repeat_command();
        ASSERT_TRUE(in_it || read[i] == 0.5F) << map.name << ' ' << i;
      }
    }
  }
}

TEST_P(MomentBlocks, ZerosAndSubnormalBlocksAreZeroAndTheEndsOfTheRangeAreNot) {
  for (const Map& map : kMaps) {
    for (const float value : {0.0F, bits_to_float(1), bits_to_float(0x7fffff)}) {
      if (map.kind == MomentKind::square && value > 0) continue;  // stays above 0
      Stored stored(map, 131);
      stored.write(std::vector<float>(131, value), GetParam());
      for (const float read : stored.read(GetParam())) ASSERT_EQ(read, 0.0F) << map.name << ' ' << value;
    }
    const bool octaves = map.store == MomentStore::int8 && map.kind == MomentKind::square;
    for (const float value : {octaves ? 0x1p-100F : 0x1p-126F, 3e38F}) {
      Stored stored(map, 131);
      stored.write(std::vector<float>(131, value), GetParam());
      for (const float read : stored.read(GetParam())) ASSERT_EQ(read, value) << map.name;
    }
  }
}

std::vector<UpdateStep> rules_with_state() {
  UpdateStep momentum{.kind = UpdateKind::sgd_momentum, .negative_lr = -0.1F, .momentum = 0.9F};
  momentum.weight_decay = 0.01F;
  UpdateStep first = momentum;
  first.first_step = true;
  UpdateStep adamw{.kind = UpdateKind::adamw,
                   .beta1 = 0.9F,
                   .one_minus_beta1 = 0.1F,
                   .beta2 = 0.999F,
                   .one_minus_beta2 = 1e-3F,
                   .decay = 0.99F,
                   .negative_step_size = -0.03F,
                   .sqrt_correction2 = 0.2F,
                   .eps = 1e-8F};
  UpdateStep adam = adamw;
  adam.kind = UpdateKind::adam;
  return {momentum, first, adamw, adam};
}

/// Moments are read, updated in fp32 by the loops that optimizer_test.cpp tests, held ones cleared, and
/// written.
TEST_P(MomentBlocks, UpdatesAreThoseOfFp32MomentsBetweenReadingAndWriting) {
  for (const MomentStore store : {MomentStore::int8, MomentStore::int4}) {
    for (const UpdateStep& step : rules_with_state()) {
      for (const bool masked : {false, true}) {
        for (const int64_t size : {1, 77, 513, 16384 + 261}) {
          SCOPED_TRACE(::testing::Message()
                       << moment_block(store) << " kind " << static_cast<int>(step.kind) << " size " << size
                       << " masked " << masked << "; " << repeat_command());
          const Map mean{"", store, MomentKind::mean}, square{"", store, MomentKind::square};
          Stored first(mean, size), second(square, size), first_after(mean, size), second_after(square, size);
          first.write(moments_of(mean, size, 3), Isa::portable);
          second.write(moments_of(square, size, 4), Isa::portable);
          std::vector<float> m = first.read(Isa::portable), v = second.read(Isa::portable);
          const std::vector<float> gradient = random_floats(size, 5);
          std::vector<float> expected = random_floats(size, 6), got = expected;
          std::vector<uint8_t> mask(static_cast<size_t>((size + 7) / 8), 0xb7);

          OptimizerTensor tensor;
          tensor.size = size;
          tensor.gradient = gradient.data();
          tensor.step = &step;
          if (masked) tensor.mask = mask.data();
          OptimizerTensor wide = tensor;
          wide.parameter = expected.data();
          wide.first = m.data();
          wide.second = v.data();
          tensor.parameter = got.data();
          tensor.moments = store;
          tensor.first = first.codes.data();
          tensor.second = second.codes.data();
          tensor.first_absmax = first.absmax.data();
          tensor.second_absmax = second.absmax.data();
          update_parameters({wide}, 0.25F, 0.9F, Isa::portable, SerialParallel());
          update_parameters({tensor}, 0.25F, 0.9F, GetParam(), ThreadParallel(2));

          first_after.write(m, Isa::portable);
          second_after.write(v, Isa::portable);
          ASSERT_EQ(expected, got);
          ASSERT_TRUE(first.equal(first_after));
          const bool adam = step.kind == UpdateKind::adam || step.kind == UpdateKind::adamw;
          ASSERT_TRUE(!adam || second.equal(second_after));
          ASSERT_TRUE(first.codes.intact() && first.absmax.intact());
          ASSERT_TRUE(second.codes.intact() && second.absmax.intact());
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, MomentBlocks, ::testing::ValuesIn(available_isas()), isa_name);

TEST(MomentStores, OthersThanBlocksAreRefused) {
  float wide = 1, absmax = 1;
  uint8_t code = 1;
  for (const MomentStore store : {MomentStore::f32, MomentStore::bf16}) {
    EXPECT_THROW(
        load_moments(store, MomentKind::mean, &code, &absmax, 1, &wide, Isa::portable, SerialParallel()),
        Error);
    EXPECT_THROW(
        store_moments(store, MomentKind::mean, &wide, 1, &code, &absmax, Isa::portable, SerialParallel()),
        Error);
  }
}

}  // namespace
}  // namespace ulp::kernels::test
