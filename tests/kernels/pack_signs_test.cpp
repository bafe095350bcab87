// Signs as bits, on every instruction set.
#include "ulp/kernels/binary/pack_signs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "binary_reference.h"
#include "ulp/base/error.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Numbers around 0 and the odd ones among them.
std::vector<float> numbers(int64_t n) {
  std::vector<float> x = random_floats(n, 11);
  const float odd[] = {0.0F, -0.0F, kInfinity, -kInfinity, kNaN, -kNaN, 0.25F, -0.25F, 1e-45F, -1e-45F};
  for (size_t i = 0; i < x.size(); i += 3) x[i] = odd[i / 3 % std::size(odd)];
  return x;
}

class PackSigns : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(, PackSigns, ::testing::ValuesIn(available_isas()), isa_name);

TEST_P(PackSigns, GivesTheBitsOfPlainComparisons) {
  for (const int64_t channels : {1, 3, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 130, 20000}) {
    for (const int64_t rows : {0, 1, 2, 7}) {
      for (const bool with_threshold : {false, true}) {
        for (const bool with_flip : {false, true}) {
          const std::vector<float> x = numbers(rows * channels);
          std::vector<float> threshold = random_floats(channels, 12, -0.5F, 0.5F);
          threshold[0] = -kInfinity;
          threshold.back() = kInfinity;
          if (channels > 2) threshold[2] = -0.25F;
          const std::vector<uint8_t> flip = random_ints<uint8_t>(bit_bytes(channels), 13, 0, 255);
          std::vector<int> signs;
          for (size_t i = 0; i < x.size(); ++i) {
            const size_t c = i % static_cast<size_t>(channels);
            const bool flipped = with_flip && (flip[c / 8] >> c % 8 & 1) != 0;
            signs.push_back((x[i] >= (with_threshold ? threshold[c] : 0.0F)) != flipped ? 1 : -1);
          }
          const SignRows what{channels, with_threshold ? threshold.data() : nullptr,
                              with_flip ? flip.data() : nullptr};
          for (const int workers : {1, 4}) {
            Guarded<uint8_t> bits(rows * bit_bytes(channels));
            pack_signs(what, rows, x.data(), bits.data(), GetParam(), ThreadParallel(workers));
            ASSERT_TRUE(bits.intact());
            ASSERT_EQ(bits.values(), bits_of(signs, channels))
                << rows << " rows of " << channels << " channels, thresholds " << with_threshold << ", flips "
                << with_flip << "; " << repeat_command();
          }
        }
      }
    }
  }
}

TEST_P(PackSigns, ZerosArePositiveAndNaNsNegative) {
  const std::vector<float> x = {0.0F, -0.0F, kNaN, -kNaN, kInfinity, -kInfinity, 1e-45F, -1e-45F};
  std::vector<uint8_t> bits(1);
  pack_signs({.channels = 8}, 1, x.data(), bits.data(), GetParam(), SerialParallel());
  EXPECT_EQ(bits[0], 0b10101100);
  const uint8_t flip = 0xff;
  pack_signs({.channels = 8, .flip = &flip}, 1, x.data(), bits.data(), GetParam(), SerialParallel());
  EXPECT_EQ(bits[0], 0b01010011);
}

TEST_P(PackSigns, ManyNumbersAreSharedOut) {
  const int64_t channels = 64, rows = 40000;
  const std::vector<float> x = random_floats(rows * channels, 5);
  std::vector<uint8_t> one(static_cast<size_t>(rows * 8)), four(one.size());
  pack_signs({.channels = channels}, rows, x.data(), one.data(), GetParam(), SerialParallel());
  pack_signs({.channels = channels}, rows, x.data(), four.data(), GetParam(), ThreadParallel(4));
  EXPECT_EQ(one, four);
  EXPECT_EQ(one[12345] & 1, x[12345 * 8] >= 0 ? 0 : 1);
}

TEST(PackSignsErrors, NoChannels) {
  uint8_t bits = 0;
  EXPECT_THROW(pack_signs({.channels = 0}, 1, nullptr, &bits, Isa::portable, SerialParallel()), Error);
}

}  // namespace
}  // namespace ulp::kernels
