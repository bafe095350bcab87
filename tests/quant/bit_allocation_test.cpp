// The dynamic programme over bytes beside all choices written out.
#include "ulp/quant/weights/bit_allocation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "error_of.h"

namespace ulp::quant {
namespace {

using Weights = std::vector<std::vector<BitChoice>>;

Weights random_weights(std::mt19937& random, size_t count, int64_t most_bytes) {
  Weights weights(count);
  for (auto& choices : weights) {
    choices.resize(1 + random() % 4);
    for (BitChoice& one : choices) {
      one.bytes = static_cast<int64_t>(random()) % most_bytes;
      one.loss = static_cast<double>(random() % 9) / 8;  // ties, and sums that are exact
    }
  }
  return weights;
}

/// Sums of all choices.
std::vector<BitChoice> all_sums(const Weights& weights) {
  std::vector<BitChoice> sums = {{}};
  for (const auto& choices : weights) {
    std::vector<BitChoice> next;
    for (const BitChoice& sum : sums) {
      for (const BitChoice& one : choices) next.push_back({sum.bytes + one.bytes, sum.loss + one.loss});
    }
    sums = next;
  }
  return sums;
}

double least_within(const std::vector<BitChoice>& sums, int64_t bytes) {
  double least = std::numeric_limits<double>::infinity();
  for (const BitChoice& sum : sums) {
    if (sum.bytes <= bytes) least = std::min(least, sum.loss);
  }
  return least;
}

BitChoice sum_of(const Weights& weights, const std::vector<size_t>& choices) {
  BitChoice sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum.bytes += weights[i][choices[i]].bytes;
    sum.loss += weights[i][choices[i]].loss;
  }
  return sum;
}

TEST(BitAllocations, AreTheBestOfAllChoices) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const Weights weights = random_weights(random, 1 + round % 7, round % 2 == 0 ? 12 : 4000);
    const BitAllocations front(weights);
    const std::vector<BitChoice> sums = all_sums(weights);
    ASSERT_GT(front.size(), 0U);
    EXPECT_EQ(front.resolution(), 1);
    for (size_t i = 0; i < front.size(); ++i) {
      const BitChoice sum = sum_of(weights, front.choices(i));
      EXPECT_EQ(sum.bytes, front.bytes(i));
      EXPECT_EQ(sum.loss, front.loss(i));
      EXPECT_EQ(front.loss(i), least_within(sums, front.bytes(i)));
      if (i > 0) EXPECT_LT(front.bytes(i - 1), front.bytes(i));
      if (i > 0) EXPECT_GT(front.loss(i - 1), front.loss(i));
    }
    for (const BitChoice& sum : sums) {
      const size_t best = front.within_bytes(sum.bytes);
      ASSERT_LT(best, front.size());
      EXPECT_EQ(front.loss(best), least_within(sums, sum.bytes));
      const size_t smallest = front.within_loss(sum.loss);
      ASSERT_LT(smallest, front.size());
      EXPECT_LE(front.bytes(smallest), sum.bytes);
      EXPECT_LE(front.loss(smallest), sum.loss);
    }
    EXPECT_EQ(front.within_bytes(front.bytes(0) - 1), front.size());
    EXPECT_EQ(front.within_loss(front.loss(front.size() - 1) - 0.1), front.size());
  }
}

TEST(BitAllocations, RoundBytesUpWhereThereAreTooManySums) {
  std::mt19937 random(4);
  for (int round = 0; round < 50; ++round) {
    const Weights weights = random_weights(random, 8, 100000);
    const BitAllocations front(weights, 64);
    const std::vector<BitChoice> sums = all_sums(weights);
    const int64_t slack = front.resolution() * static_cast<int64_t>(weights.size());
    for (size_t i = 0; i < front.size(); ++i) {
      const BitChoice sum = sum_of(weights, front.choices(i));
      EXPECT_EQ(sum.bytes, front.bytes(i));
      EXPECT_EQ(sum.loss, front.loss(i));
      EXPECT_LE(front.loss(i), least_within(sums, front.bytes(i) - slack));
      if (i > 0) EXPECT_LT(front.bytes(i - 1), front.bytes(i));
    }
  }
}

TEST(BitAllocations, FewSumsAreEnoughForAnyBytes) {
  const int64_t large = int64_t{1} << 59;
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, large}) {
    const Weights weights(5, {{0, 1.0}, {bytes, 0.5}, {large, 0.25}});
    for (const size_t most : {0, 1, 2, 3}) {
      const BitAllocations front(weights, most);
      ASSERT_GT(front.size(), 0U);
      const BitChoice sum = sum_of(weights, front.choices(front.size() - 1));
      EXPECT_EQ(sum.bytes, front.bytes(front.size() - 1));
      EXPECT_EQ(sum.loss, 5 * 0.25);
    }
  }
}

TEST(BitAllocations, TakeManyWeights) {
  Weights weights(300);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto size = static_cast<int64_t>(1000 + 37 * i);
    for (const int64_t bits : {2, 3, 4, 8})
      weights[i].push_back({size * bits + static_cast<int64_t>(i % 5),
                            std::ldexp(1.0 + static_cast<double>(i % 11), -static_cast<int>(2 * bits))});
  }
  const BitAllocations front(weights, 5000);
  EXPECT_GT(front.resolution(), 1);
  int64_t eight = 0;
  for (const auto& choices : weights) eight += choices[3].bytes;
  EXPECT_EQ(front.bytes(front.size() - 1), eight);
  EXPECT_EQ(front.within_bytes(eight), front.size() - 1);
}

TEST(BitAllocations, RefuseWhatHasNoSum) {
  EXPECT_ERROR(BitAllocations({{{1, 1.0}}, {}}), "expected choices for each weight");
  EXPECT_ERROR(BitAllocations({{{-1, 1.0}}}), "expected bytes >= 0");
  EXPECT_ERROR(BitAllocations({{{1, std::nan("")}}}), "and a loss, got 1 and nan");
  EXPECT_EQ(BitAllocations({}).size(), 0U);
}

}  // namespace
}  // namespace ulp::quant
