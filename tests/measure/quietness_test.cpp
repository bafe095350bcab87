#include <gtest/gtest.h>

#include "ulp/measure/interference.h"
#include "ulp/measure/measure.h"

namespace {

using namespace ulp::measure;
using ulp::CpuGroup;
using ulp::CpuUsage;
using ulp::UsageProbe;

TEST(Interference, MarksSayTheShare) {
  EXPECT_EQ(busy_mark(0.376), "busy: others took 38 %");
  EXPECT_EQ(busy_mark(0.48, CoresUsed{1.02, 2}), "busy: others took 48 % (1.0 of 2 cores used)");
  EXPECT_EQ(busy_mark(0.48, CoresUsed{0.75, 1.5}), "busy: others took 48 % (0.8 of 1.5 cores used)");
  EXPECT_EQ(busy_mark(0.48, CoresUsed{1.02, 2}, 0.00812),
            "busy: others took 48 % (1.0 of 2 cores used; some 8.1 ms when quiet)");
  EXPECT_EQ(busy_mark(0.48, CoresUsed{1.02, 2}, 12.4),
            "busy: others took 48 % (1.0 of 2 cores used; some 12 s when quiet)");
  EXPECT_FALSE(is_disturbed(std::nullopt));
  EXPECT_FALSE(is_disturbed(kQuietShare));
  EXPECT_TRUE(is_disturbed(2 * kQuietShare));
}

TEST(Interference, WhatIsExpectedWhenQuiet) {
  EXPECT_DOUBLE_EQ(*quiet_seconds(8, CoresUsed{1.5, 2}, 2), 6);
  EXPECT_DOUBLE_EQ(*quiet_seconds(8, CoresUsed{0.5, 2}, 1), 4);
  EXPECT_DOUBLE_EQ(*quiet_seconds(8, CoresUsed{0.75, 1.5}, 4), 4) << "a quota";
  EXPECT_DOUBLE_EQ(*quiet_seconds(8, CoresUsed{1.2, 2}, 1), 8) << "more than its own threads";
  EXPECT_EQ(quiet_seconds(8, CoresUsed{1.5, 2}, 0), std::nullopt);
  EXPECT_EQ(quiet_seconds(8, CoresUsed{0.01, 2}, 2), std::nullopt);
  EXPECT_EQ(quiet_seconds(8, std::nullopt, 2), std::nullopt);
}

/// A machine of two processors on which each span between two looks takes a second; others take the given
/// shares in the spans that are measured, one after the other, and everything in between.
class FakeMachine {
 public:
  explicit FakeMachine(std::vector<double> shares) : shares_(std::move(shares)) {}

  UsageProbe probe() {
    return [this] {
      const bool ends_a_span = looks_++ % 2 == 1;
      const double share = !ends_a_span ? 1 : next_ < shares_.size() ? shares_[next_++] : 0;
      now_.wall += 1;
      now_.own += 2 * (1 - share);
      now_.all += 2;
      return now_;
    };
  }
  size_t spans() const { return looks_ / 2; }

 private:
  CpuUsage now_ = {.processors = 2};
  std::vector<double> shares_;
  size_t next_ = 0, looks_ = 0;
};

TEST(QuietMeter, AddsUpItsSpansOnly) {
  FakeMachine machine({0.5, 0.1});
  QuietMeter meter(machine.probe());
  EXPECT_EQ(meter.others(), std::nullopt);
  EXPECT_FALSE(meter.cores());
  for (int i = 0; i < 2; ++i) {
    meter.begin();
    meter.end();
  }
  EXPECT_NEAR(*meter.others(), 0.3, 1e-12);
  EXPECT_NEAR(meter.cores()->used, 1.4, 1e-12);
  EXPECT_EQ(meter.cores()->usable, 2);
}

TEST(QuietMeter, AddsUpTheTimeOfTheGroup) {
  CpuUsage now = {.processors = 2, .group = CpuGroup{1, 0}};
  QuietMeter meter([&] {
    now.wall += 1;
    now.group->used += 0.5;
    return now;
  });
  for (int i = 0; i < 3; ++i) {
    meter.begin();
    meter.end();
  }
  EXPECT_NEAR(*meter.others(), 0.5, 1e-12);
  EXPECT_EQ(meter.cores()->usable, 1);
}

class TimeInTurns : public ::testing::Test {
 protected:
  std::vector<Timing> time(FakeMachine& machine, int attempts = 3) {
    return time_in_turns(
        {{"a", [&](int64_t) { order_ += 'a'; }}, {"b", [&](int64_t) { order_ += 'b'; }}}, 1,
        {.rounds = 2, .round_seconds = 0, .warmup_calls = 0, .attempts = attempts, .probe = machine.probe()});
  }
  std::string order_;
};

TEST_F(TimeInTurns, AQuietMachineIsMeasuredOnce) {
  FakeMachine machine({0, kQuietShare, 0, kQuietShare / 2});
  const auto timings = time(machine);
  EXPECT_EQ(order_, "abab");
  EXPECT_EQ(machine.spans(), 4u);
  EXPECT_NEAR(*timings[0].others, 0, 1e-12);
  EXPECT_NEAR(*timings[1].others, 0.75 * kQuietShare, 1e-12);
}

TEST_F(TimeInTurns, ADisturbedCandidateIsMeasuredAgain) {
  FakeMachine machine({0, 0.5, 0, 0.3, /*b again:*/ 0.02, 0});
  const auto timings = time(machine);
  EXPECT_EQ(order_, "ababbb");
  EXPECT_NEAR(*timings[0].others, 0, 1e-12);
  EXPECT_NEAR(*timings[1].others, 0.01, 1e-12);
}

TEST_F(TimeInTurns, OnAMachineThatStaysBusyTheQuietestAttemptCounts) {
  FakeMachine machine({0.9, 0.5, 0.9, 0.5, 0.2, 0.6, 0.2, 0.6, 0.4, 0.7, 0.4, 0.7, 0, 0, 0, 0});
  const auto timings = time(machine);
  EXPECT_EQ(order_, "abababababab") << "three attempts and no more";
  EXPECT_NEAR(*timings[0].others, 0.2, 1e-12);
  EXPECT_NEAR(*timings[1].others, 0.5, 1e-12);
  EXPECT_TRUE(is_disturbed(timings[0].others));
}

TEST_F(TimeInTurns, OneAttemptIsOne) {
  FakeMachine machine({0.9, 0.5, 0.9, 0.5});
  EXPECT_NEAR(*time(machine, 1)[0].others, 0.9, 1e-12);
  EXPECT_EQ(order_, "abab");
}

}  // namespace
