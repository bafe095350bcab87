// Ramps: numbers along a run, and their text.
#include <gtest/gtest.h>

#include "ulp/distill/weight_schedule.h"

namespace ulp::distill::tests {
namespace {

TEST(WeightSchedule, IsLinearBetweenItsShares) {
  const WeightSchedule ramp{8, 2, 0.25, 0.75};
  EXPECT_EQ(ramp.at(0), 8);
  EXPECT_EQ(ramp.at(0.25), 8);
  EXPECT_DOUBLE_EQ(ramp.at(0.5), 5);
  EXPECT_DOUBLE_EQ(ramp.at(0.625), 3.5);
  EXPECT_EQ(ramp.at(0.75), 2);
  EXPECT_EQ(ramp.at(1), 2);
  EXPECT_EQ(WeightSchedule::constant(3).at(0.5), 3);
  const WeightSchedule step{1, 0, 0.5, 0.5};
  EXPECT_EQ(step.at(0.499), 1);
  EXPECT_EQ(step.at(0.5), 0);
}

TEST(WeightSchedule, ItsTextIsReadBackToTheSameBits) {
  for (const WeightSchedule& ramp :
       {WeightSchedule{1000, 0}, WeightSchedule{8, 1, 0.2, 0.9}, WeightSchedule::constant(0.1),
        WeightSchedule::constant(-2.5), WeightSchedule{1e-7, 1e22}, WeightSchedule{1, 2, 1e-4, 1e-3},
        WeightSchedule{1, 2, 0, 1e-4}, WeightSchedule{1.0 / 3, 2.0 / 3, 0.1, 0.1},
        WeightSchedule{-1, -2, 0.5, 1}}) {
    const auto read = WeightSchedule::from_text(ramp.text());
    ASSERT_TRUE(read) << ramp.text();
    EXPECT_EQ(*read, ramp) << ramp.text();
  }
  EXPECT_EQ((WeightSchedule{1000, 0}.text()), "1000>0");
  EXPECT_EQ((WeightSchedule{8, 1, 0.2, 0.9}.text()), "8>1:0.2-0.9");
  EXPECT_EQ(WeightSchedule::constant(4).text(), "4");
}

TEST(WeightSchedule, OtherTextIsNone) {
  for (const char* text :
       {"", "x", "1x", " 1", "1>", ">1", "1>2>3", "1>2:", "1>2:0.5", "1>2:0.5-", "1>2:-0.5-1", "1>2:0.6-0.5",
        "1>2:0-1.5", "inf", "nan", "1>inf", "1:0-1", "1>2:a-b", "1e999"})
    EXPECT_FALSE(WeightSchedule::from_text(text)) << text;
}

}  // namespace
}  // namespace ulp::distill::tests
