#include "ulp/base/cpu_usage.h"

#include <gtest/gtest.h>

namespace ulp {
namespace {

/// Four processors, ten seconds, this process on one of them.
CpuUsage after(double all, double own = 10) {
  return {.wall = 110, .all = 1000 + all, .own = 5 + own, .processors = 4};
}

const CpuUsage kBefore = {.wall = 100, .all = 1000, .own = 5, .processors = 4};

TEST(CpuUsage, WhatIsNotOursIsTheOthers) {
  EXPECT_DOUBLE_EQ(*share_of_others(kBefore, after(10)), 0);
  EXPECT_DOUBLE_EQ(*share_of_others(kBefore, after(30)), 0.5);
  EXPECT_DOUBLE_EQ(*share_of_others(kBefore, after(40, 40)), 0);
  EXPECT_DOUBLE_EQ(*share_of_others(kBefore, after(40, 0)), 1);
}

TEST(CpuUsage, TicksThatCountLessThanOurTimeAreNoNegativeShare) {
  EXPECT_DOUBLE_EQ(*share_of_others(kBefore, after(9.9)), 0);
  EXPECT_DOUBLE_EQ(*share_of_others(kBefore, after(41, 0)), 1);
}

TEST(CpuUsage, SpansOfFewTicksAndUnknownSystemsSayNothing) {
  CpuUsage soon = kBefore;
  soon.wall += 0.05;
  soon.all += 0.02;
  EXPECT_EQ(share_of_others(kBefore, soon), std::nullopt);
  CpuUsage unknown = after(30);
  unknown.processors = 0;
  EXPECT_EQ(share_of_others(kBefore, unknown), std::nullopt);
}

TEST(CpuUsage, BeyondTheLimitOfTheGroupOthersDisturbNobody) {
  CpuUsage before = kBefore, limited = after(10 + 20);
  before.group = {2, 50};
  limited.group = {2, 60};  // two of four processors are ours to use; the group used only what we did
  EXPECT_DOUBLE_EQ(*share_of_others(before, limited), 0);
  limited.all += 10;  // ten seconds more than the two other processors have
  EXPECT_DOUBLE_EQ(*share_of_others(before, limited), 0.5);
}

TEST(CpuUsage, OtherMembersOfTheGroupTakeFromItsLimit) {
  CpuUsage before = kBefore, limited = after(15);
  before.group = {1.5, 50};
  limited.group = {1.5, 65};
  EXPECT_DOUBLE_EQ(*share_of_others(before, limited), 5 / 15.0);
}

TEST(CpuUsage, TheMachineIsRead) {
  const CpuUsage usage = read_cpu_usage();
  EXPECT_GT(usage.processors, 0);
  EXPECT_GT(usage.all, 0);
  EXPECT_GT(usage.own, 0);
  EXPECT_LT(usage.wall, read_cpu_usage().wall);
}

TEST(CpuUsage, SpansAddUp) {
  CpuUsage sum;
  add_span(sum, kBefore, after(10));
  add_span(sum, kBefore, after(30));
  EXPECT_DOUBLE_EQ(sum.wall, 20);
  EXPECT_DOUBLE_EQ(*share_of_others({}, sum), 0.25);
}

}  // namespace
}  // namespace ulp
