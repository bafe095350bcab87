#include "ulp/amp/threads/adaptive_threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ulp/base/error.h"

namespace {

using ulp::CpuGroup;
using ulp::CpuUsage;
using ulp::amp::adapt_threads;
using ulp::amp::AdaptiveThreads;
using ulp::amp::AdaptiveThreadsOptions;

/// A machine of so many processors on which a second passes between two looks.
class FourCores : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = at::get_num_threads();
    at::set_num_threads(4);
  }
  void TearDown() override { at::set_num_threads(before_); }

  AdaptiveThreadsOptions options(int processors = 4) {
    now_.processors = processors;
    return {.window_seconds = 0, .probe = [this] { return now_; }};
  }
  /// A second in which others take so many processors and this process one; the count after it.
  int second(AdaptiveThreads& threads, double others) {
    now_.wall += 1;
    now_.own += 1;
    now_.all += 1 + others;
    if (now_.group) now_.group->used += 1;
    threads.step();
    EXPECT_EQ(at::get_num_threads(), threads.threads());
    return threads.threads();
  }

  CpuUsage now_;
  int before_ = 0;
};

TEST_F(FourCores, FallAtOnceAndRiseAfterTwoLooks) {
  AdaptiveThreads threads(options());
  EXPECT_EQ(second(threads, 0.4), 4);
  EXPECT_EQ(second(threads, 1), 3);
  EXPECT_EQ(second(threads, 2.6), 1);
  EXPECT_EQ(second(threads, 3.9), 1) << "one at least";
  EXPECT_EQ(second(threads, 0), 1) << "one look is not enough";
  EXPECT_EQ(second(threads, 3), 1);
  EXPECT_EQ(second(threads, 0.1), 1) << "not two in a row";
  EXPECT_EQ(second(threads, 0.1), 4);
}

TEST_F(FourCores, StayWhereAProgramComesAndGoes) {
  AdaptiveThreads threads(options());
  EXPECT_EQ(second(threads, 1), 3);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(second(threads, i % 2 == 0 ? 0.3 : 1.2), 3);
}

TEST_F(FourCores, FollowTheLimitOfTheGroup) {
  now_.group = CpuGroup{.limit = 1.5, .used = 0};
  AdaptiveThreads threads(options());
  EXPECT_EQ(second(threads, 0), 2);
}

TEST_F(FourCores, AreNotMoreThanAsked) {
  AdaptiveThreadsOptions two = options(/*processors=*/8);
  two.most = 2;
  AdaptiveThreads threads(two);
  EXPECT_EQ(at::get_num_threads(), 2);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(second(threads, 0), 2);
  EXPECT_EQ(second(threads, 7), 1);
}

TEST_F(FourCores, StayWhereTheSystemSaysNothing) {
  AdaptiveThreads threads(options(/*processors=*/0));
  EXPECT_EQ(second(threads, 3), 4);
  EXPECT_EQ(threads.others(), std::nullopt);
}

TEST_F(FourCores, SayWhatWasSeen) {
  AdaptiveThreads threads(options());
  EXPECT_EQ(threads.others(), std::nullopt);
  EXPECT_EQ(threads.mean_threads(), 4);
  second(threads, 2);
  second(threads, 2);
  EXPECT_DOUBLE_EQ(*threads.others(), 0.5);
  EXPECT_DOUBLE_EQ(threads.mean_threads(), 3) << "four in the first second, two in the next";
}

TEST_F(FourCores, AreSetBackAndNest) {
  EXPECT_EQ(AdaptiveThreads::current(), nullptr);
  adapt_threads();
  {
    AdaptiveThreads outer(options());
    second(outer, 2);
    {
      AdaptiveThreads inner(options());
      EXPECT_EQ(AdaptiveThreads::current(), &inner);
      EXPECT_EQ(inner.most(), 2);
      now_.wall += 1;
      now_.all += 4;
      adapt_threads();
      EXPECT_EQ(at::get_num_threads(), 1);
    }
    EXPECT_EQ(AdaptiveThreads::current(), &outer);
    EXPECT_EQ(at::get_num_threads(), 2);
  }
  EXPECT_EQ(at::get_num_threads(), 4);
  EXPECT_EQ(AdaptiveThreads::current(), nullptr);
}

TEST_F(FourCores, DoNotLookBeforeTheWindowHasPassed) {
  AdaptiveThreadsOptions slow = options();
  slow.window_seconds = 1e6;
  AdaptiveThreads threads(slow);
  EXPECT_EQ(second(threads, 3), 4);
}

TEST(AdaptiveThreads, RefusesOptionsThatAreNone) {
  const int before = at::get_num_threads();
  EXPECT_THROW(AdaptiveThreads({.most = -1}), ulp::Error);
  EXPECT_THROW(AdaptiveThreads({.window_seconds = std::nan("")}), ulp::Error);
  EXPECT_THROW(AdaptiveThreads({.window_seconds = -1}), ulp::Error);
  EXPECT_EQ(at::get_num_threads(), before);
  EXPECT_EQ(AdaptiveThreads::current(), nullptr);
}

}  // namespace
