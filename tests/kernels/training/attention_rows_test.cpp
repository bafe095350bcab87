// Rows of attention scores on every instruction set: the bits of the plain loops, which are compared with formulas in float64.
#include "ulp/kernels/training/attention_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/helpers.h"

namespace ulp::kernels {
namespace {

class AttentionRowsTest : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(All, AttentionRowsTest, ::testing::ValuesIn(available_isas()), test::isa_name);

constexpr int64_t kRows = 5;
constexpr float kScale = 0.4F;

/// Scores of `keys` keys whose first row sees `visible` of them.
struct Scores {
  std::vector<float> data;
  ScoreRows rows;
  Scores(int64_t keys, int64_t visible, int64_t step, uint32_t seed)
      : data(test::random_floats(kRows * (keys + 3), seed, -8, 8)), rows{data.data(), kRows,   keys,
                                                                         keys + 3,    visible, step} {}
  Scores(const Scores&) = delete;
  Scores& operator=(const Scores&) = delete;
  int64_t seen(int64_t r) const { return std::min(rows.keys, rows.visible + r * rows.step); }
  double at(int64_t r, int64_t j) const { return double{data[static_cast<size_t>(r * rows.stride + j)]}; }
};

struct Case {
  int64_t keys, visible, step;
};
constexpr Case kCases[] = {{1, 1, 0},  {7, 7, 0},     {16, 16, 0}, {65, 65, 0},
                           {65, 1, 1}, {130, 128, 1}, {33, 40, 0}};

TEST_P(AttentionRowsTest, ExponentialsAndProbabilitiesAreASoftmax) {
  const AttentionRowOps& ops = attention_row_ops(GetParam());
  const AttentionRowOps& plain = attention_row_ops(Isa::portable);
  for (const auto& [keys, visible, step] : kCases) {
    const Scores given(keys, visible, step, 3);
    Scores made(keys, visible, step, 3), other(keys, visible, step, 3), again(keys, visible, step, 3),
        plain_again(keys, visible, step, 3);
    float sums[kRows], logs[kRows], plain_sums[kRows], plain_logs[kRows];
    ops.exponentials(made.rows, kScale, sums, logs);
    plain.exponentials(other.rows, kScale, plain_sums, plain_logs);
    ops.probabilities(again.rows, kScale, logs);
    plain.probabilities(plain_again.rows, kScale, plain_logs);
    EXPECT_EQ(made.data, other.data);
    EXPECT_EQ(again.data, plain_again.data);
    for (int64_t r = 0; r < kRows; ++r) {
      EXPECT_EQ(sums[r], plain_sums[r]);
      EXPECT_EQ(logs[r], plain_logs[r]);
      double total = 0;
      for (int64_t j = 0; j < given.seen(r); ++j) total += std::exp(given.at(r, j) * double{kScale});
      EXPECT_NEAR(double{logs[r]}, std::log(total), 0x1p-20 * (1 + std::fabs(std::log(total))));
      for (int64_t j = 0; j < keys; ++j) {
        const double exact = j < given.seen(r) ? std::exp(given.at(r, j) * double{kScale}) / total : 0.0;
        EXPECT_NEAR(made.at(r, j) / double{sums[r]}, exact, 0x1p-19) << "row " << r << ", key " << j;
        EXPECT_NEAR(again.at(r, j), exact, 0x1p-19) << "row " << r << ", key " << j;
      }
      for (int64_t j = keys; j < keys + 3; ++j) EXPECT_EQ(made.at(r, j), given.at(r, j)) << "between rows";
    }
  }
}

TEST_P(AttentionRowsTest, MasksAddNumbersOrHideKeys) {
  const AttentionRowOps& ops = attention_row_ops(GetParam());
  const AttentionRowOps& plain = attention_row_ops(Isa::portable);
  for (const bool truth : {false, true}) {
    for (const auto& [keys, visible, step] : kCases) {
      const Scores given(keys, visible, step, 8);
      Scores made(keys, visible, step, 8), other(keys, visible, step, 8), again(keys, visible, step, 8);
      std::vector<float> mask = test::random_floats(kRows * keys, 9, -3, 3);
      for (size_t i = 0; truth && i < mask.size(); ++i) mask[i] = mask[i] > 0 ? 1.0F : 0.0F;
      // Row 2 sees nothing.
      for (int64_t j = 0; j < keys; ++j) mask[static_cast<size_t>(2 * keys + j)] = truth ? 0.0F : -INFINITY;
      for (ScoreRows* rows : {&made.rows, &other.rows, &again.rows}) {
        rows->mask = mask.data();
        rows->mask_stride = keys;
        rows->truth = truth;
      }
      float sums[kRows], logs[kRows], plain_sums[kRows], plain_logs[kRows];
      ops.exponentials(made.rows, kScale, sums, logs);
      plain.exponentials(other.rows, kScale, plain_sums, plain_logs);
      ops.probabilities(again.rows, kScale, logs);
      EXPECT_EQ(made.data, other.data);
      for (int64_t r = 0; r < kRows; ++r) {
        EXPECT_EQ(sums[r], plain_sums[r]);
        EXPECT_EQ(logs[r], plain_logs[r]);
        const auto weight = [&](int64_t j) {
          const double m = double{mask[static_cast<size_t>(r * keys + j)]};
          if (j >= given.seen(r) || (truth && m == 0)) return 0.0;
          return std::exp(given.at(r, j) * double{kScale} + (truth ? 0 : m));
        };
        double total = 0;
        for (int64_t j = 0; j < keys; ++j) total += weight(j);
        for (int64_t j = 0; j < keys; ++j) {
          const double exact = total == 0 ? 0 : weight(j) / total;
          EXPECT_NEAR(made.at(r, j) / double{sums[r]}, exact, 0x1p-19) << "row " << r << ", key " << j;
          EXPECT_NEAR(again.at(r, j), exact, 0x1p-19) << "row " << r << ", key " << j;
        }
      }
    }
  }
}

TEST_P(AttentionRowsTest, GradientsDotsAndQuotients) {
  const AttentionRowOps& ops = attention_row_ops(GetParam());
  const AttentionRowOps& plain = attention_row_ops(Isa::portable);
  for (const auto& [keys, visible, step] : kCases) {
    const Scores given(keys, visible, step, 4);
    Scores made(keys, visible, step, 4), other(keys, visible, step, 4);
    const std::vector<float> g = test::random_floats(kRows * (keys + 3), 5, -2, 2);
    float dots[kRows], plain_dots[kRows];
    ops.row_dots(given.data.data(), keys + 3, g.data(), keys + 3, kRows, keys, dots);
    plain.row_dots(given.data.data(), keys + 3, g.data(), keys + 3, kRows, keys, plain_dots);
    ops.score_gradient(made.rows, g.data(), dots, kScale);
    plain.score_gradient(other.rows, g.data(), plain_dots, kScale);
    EXPECT_EQ(made.data, other.data);
    for (int64_t r = 0; r < kRows; ++r) {
      EXPECT_EQ(dots[r], plain_dots[r]);
      double dot = 0;
      for (int64_t j = 0; j < keys; ++j)
        dot += given.at(r, j) * double{g[static_cast<size_t>(r * (keys + 3) + j)]};
      EXPECT_NEAR(double{dots[r]}, dot, 0x1p-22 * 16 * static_cast<double>(keys));
      for (int64_t j = 0; j < keys; ++j) {
        const double slope = double{g[static_cast<size_t>(r * (keys + 3) + j)]} - double{dots[r]};
        EXPECT_NEAR(made.at(r, j), given.at(r, j) * slope * double{kScale}, 0x1p-21 * 8 * std::fabs(slope));
      }
    }
    ops.divide_rows(made.data.data(), keys + 3, kRows, keys, dots);
    plain.divide_rows(other.data.data(), keys + 3, kRows, keys, plain_dots);
    EXPECT_EQ(made.data, other.data);
  }
}

TEST_P(AttentionRowsTest, DropoutDrawsByRowAndKey) {
  const AttentionRowOps& ops = attention_row_ops(GetParam());
  const formats::RandomKey key{11, 12};
  constexpr uint32_t kThreshold = 0x60000000U;
  for (const auto& [keys, visible, step] : kCases) {
    const int64_t groups = (keys + formats::kRandomGroup - 1) / formats::kRandomGroup;
    Scores made(keys, visible, step, 6), kept(keys, visible, step, 7);
    const Scores given(keys, visible, step, 6);
    ops.dropout(made.rows, key, 100, groups, kThreshold, 1.6F, kept.data.data());
    EXPECT_EQ(made.data, given.data) << "`keep` takes the numbers";
    ops.dropout(made.rows, key, 100, groups, kThreshold, 1.6F, nullptr);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t j = 0; j < keys; ++j) {
        const auto index = static_cast<uint64_t>((100 + r * groups) * formats::kRandomGroup + j);
        const bool keeps = formats::random_bits(key, index) >= kThreshold;
        const float expected = keeps ? given.data[static_cast<size_t>(r * (keys + 3) + j)] * 1.6F : 0.0F;
        EXPECT_EQ(made.data[static_cast<size_t>(r * (keys + 3) + j)], expected);
        EXPECT_EQ(kept.data[static_cast<size_t>(r * (keys + 3) + j)], expected);
      }
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
