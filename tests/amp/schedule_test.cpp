#include "ulp/amp/optimizer/schedule.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "letters.h"
#include "ulp/amp/scaling/make_scaler.h"

namespace {

using namespace ulp::amp;

using ulp::EnumNames;

class ScheduleTest : public ::testing::Test {
 protected:
  double rate() { return optimizer_.param_groups()[0].options().get_lr(); }
  torch::Tensor weight_ = torch::ones({1}).requires_grad_();
  torch::optim::SGD optimizer_{{weight_}, torch::optim::SGDOptions(0.5)};
};

TEST_F(ScheduleTest, OnlyAStepAdvances) {
  LearningRateSchedule schedule(optimizer_, PolynomialRate{.total_steps = 4});
  EXPECT_EQ(rate(), 0.5);
  schedule.advance(StepResult::skipped_nonfinite);
  schedule.advance(StepResult::no_gradients);
  EXPECT_EQ(schedule.step(), 0);
  EXPECT_EQ(rate(), 0.5);
  schedule.advance(StepResult::stepped);
  EXPECT_EQ(schedule.step(), 1);
  EXPECT_EQ(schedule.factor(), 0.75);
  EXPECT_EQ(rate(), 0.375);
}

// The usual fault: while a new scaler finds its scale the first steps are skipped, and the warm-up passes
// without one update.
TEST_F(ScheduleTest, TheWarmUpWaitsUntilTheScalerHasFoundItsScale) {
  LearningRateSchedule schedule(optimizer_, ConstantRate{.warmup = {.steps = 4, .from = 0.25}});
  GradScaler scaler = make_scaler("pytorch");
  int skipped = 0;
  for (int i = 0; i < 12; ++i) {
    optimizer_.zero_grad();
    scaler.scale(weight_.sum() * 1e35f).backward();
    const StepResult result = scaler.step(optimizer_);
    scaler.update();
    schedule.advance(result);
    if (result == StepResult::skipped_nonfinite) ++skipped;
    ASSERT_EQ(schedule.step(), i + 1 - skipped);
    ASSERT_EQ(rate(), 0.5 * std::min(1.0, 0.25 + 0.75 * static_cast<double>(schedule.step()) / 4));
  }
  EXPECT_EQ(skipped, 5) << "2^16 down to 2^11, the first at which 1e35 does not overflow";
}

TEST_F(ScheduleTest, TheTriangleIsALinearRiseAndFall) {
  const TriangleRate rule{.total_steps = 8, .warmup = 0.25};
  const double expected[] = {0, 0.5, 1, 5 / 6.0, 4 / 6.0, 0.5, 2 / 6.0, 1 / 6.0, 0, 0};
  for (int64_t step = 0; step < 10; ++step) EXPECT_DOUBLE_EQ(rule.factor(step), expected[step]) << step;
  const TriangleRate flat{.total_steps = 2, .warmup = 0};
  EXPECT_EQ(flat.factor(0), 1);
  EXPECT_EQ(flat.factor(1), 0.5);
}

TEST_F(ScheduleTest, EveryRuleStaysAtItsEnd) {
  for (const auto& [schedule, name, help] : EnumNames<Schedule>::list) {
    const ScheduleRule rule = make_schedule_rule(schedule, 20, 0.25);
    const double end = rate_factor(rule, 20);
    EXPECT_EQ(rate_factor(rule, 21), end) << name;
    EXPECT_EQ(rate_factor(rule, int64_t{1} << 40), end) << name;
  }
  EXPECT_EQ(rate_factor(CosineRate{.total_steps = 20, .end_factor = 0.125}, 20), 0.125);
  EXPECT_DOUBLE_EQ(rate_factor(OneCycleRate{.total_steps = 20}, 19), 1 / (25.0 * 1e4));
}

TEST_F(ScheduleTest, EveryRuleIsOneAtItsPeakAndStaysBetweenZeroAndOne) {
  for (const auto& [schedule, name, help] : EnumNames<Schedule>::list) {
    for (double warmup : {0.0, 0.1, 0.5}) {
      const ScheduleRule rule = make_schedule_rule(schedule, 40, warmup);
      double peak = 0;
      for (int64_t step = 0; step <= 50; ++step) {
        const double factor = rate_factor(rule, step);
        ASSERT_GE(factor, 0) << name << step;
        peak = std::max(peak, factor);
      }
      EXPECT_LE(peak, 1) << name;
      EXPECT_GE(peak, 0.99) << name << " with warm-up " << warmup;
    }
  }
}

TEST_F(ScheduleTest, AOneCycleWhosePeakIsTheFirstStepStartsThere) {
  const OneCycleRate rule{.total_steps = 10, .pct_start = 0.1};
  EXPECT_EQ(rule.factor(0), 1);
  EXPECT_LT(rule.factor(1), 1);
}

TEST_F(ScheduleTest, AStateContinuesBitForBit) {
  for (const auto& [schedule, name, help] : EnumNames<Schedule>::list) {
    optimizer_.param_groups()[0].options().set_lr(0.5);
    const ScheduleRule rule = make_schedule_rule(schedule, 30, 0.2);
    LearningRateSchedule unbroken(optimizer_, rule);
    for (int i = 0; i < 11; ++i) unbroken.advance(StepResult::stepped);
    torch::optim::SGD other({torch::ones({1}).requires_grad_()}, torch::optim::SGDOptions(0.125));
    LearningRateSchedule continued(other, rule);
    continued.load_state_dict(unbroken.state_dict());
    EXPECT_EQ(continued.step(), 11);
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(other.param_groups()[0].options().get_lr(), rate()) << name;
      continued.advance(StepResult::stepped);
      unbroken.advance(StepResult::stepped);
    }
  }
}

TEST_F(ScheduleTest, DamagedStatesAndThoseOfAnotherRuleChangeNothing) {
  LearningRateSchedule schedule(optimizer_, CosineRate{.total_steps = 10});
  schedule.advance(StepResult::stepped);
  const ScheduleState good = schedule.state_dict();
  const auto refused = [&](const char* name, double value, const char* part) {
    ScheduleState state = good;
    state[name] = value;
    EXPECT_ERROR(schedule.load_state_dict(state), part);
  };
  refused("step", -1, "whole number >= 0 for step, got -1");
  refused("step", 1.5, "whole number");
  refused("step", std::nan(""), "whole number");
  refused("base_lr.0", std::nan(""), "finite base rates");
  refused("base_lr.0", 1e300, "finite base rates");
  refused("base_lr.0", -0.1, "finite base rates >= 0");
  refused("total_steps", 20, "expected total_steps = 10 as in this schedule, got 20");
  refused("base_lr.1", 1, "entries");
  EXPECT_ERROR(schedule.load_state_dict({}), "expected an entry _cosine, got none");
  LearningRateSchedule polynomial(optimizer_, PolynomialRate{.total_steps = 10});
  EXPECT_ERROR(schedule.load_state_dict(polynomial.state_dict()), "expected an entry _cosine");
  EXPECT_EQ(schedule.state_dict(), good);
}

TEST_F(ScheduleTest, RulesOutOfRangeAreErrorsThatNameTheField) {
  const auto refused = [&](const ScheduleRule& rule, const char* part) {
    EXPECT_ERROR(LearningRateSchedule(optimizer_, rule), part);
  };
  refused(ConstantRate{.warmup = {.steps = -1}}, "warmup.steps >= 0");
  refused(ConstantRate{.warmup = {.from = 1.5}}, "warmup.from between 0 and 1");
  refused(CosineRate{}, "total_steps above the 0 of the warm-up, got 0");
  refused(CosineRate{.total_steps = 5, .warmup = {.steps = 5}}, "total_steps above the 5");
  refused(CosineRate{.total_steps = 5, .cycles = 0}, "cycles > 0");
  refused(CosineRate{.total_steps = 5, .end_factor = -0.1}, "end_factor between 0 and 1");
  refused(PolynomialRate{.total_steps = 5, .power = -1}, "power > 0");
  refused(PolynomialRate{.total_steps = 5, .end_factor = 2}, "end_factor between 0 and 1");
  refused(OneCycleRate{.total_steps = 1}, "total_steps >= 2");
  refused(OneCycleRate{.total_steps = 9, .pct_start = 1.1}, "pct_start between 0 and 1");
  refused(OneCycleRate{.total_steps = 9, .pct_start = 0.6, .three_phase = true},
          "pct_start between 0 and 0.5");
  refused(OneCycleRate{.total_steps = 9, .div_factor = 0.5}, "div_factor between 1");
  refused(OneCycleRate{.total_steps = 9, .final_div_factor = std::nan("")}, "final_div_factor");
  refused(OneCycleRate{.total_steps = 9, .base_momentum = 0.99}, "base_momentum between 0 and 0.95");
  refused(OneCycleRate{.total_steps = 9, .max_momentum = 1}, "max_momentum < 1");
  refused(TriangleRate{}, "total_steps >= 1");
  refused(TriangleRate{.total_steps = 3, .warmup = 1}, "warmup in [0, 1)");
  EXPECT_EQ(rate(), 0.5);
  EXPECT_ERROR(rate_factor(ConstantRate{}, -1), "expected a step >= 0");
}

TEST_F(ScheduleTest, EveryScheduleMakesARuleAndBadNumbersAreRefused) {
  EXPECT_ERROR(make_schedule_rule(Schedule::cosine, 0, 0), "total_steps >= 1");
  EXPECT_ERROR(make_schedule_rule(Schedule::cosine, 10, 1), "warmup in [0, 1)");
  EXPECT_ERROR(make_schedule_rule(Schedule::one_cycle, 1, 0), "total_steps >= 2");
  EXPECT_EQ(rate_factor(make_schedule_rule(Schedule::constant, 10, 0.5), 0), 1);
  EXPECT_EQ(rate_factor(make_schedule_rule(Schedule::constant_with_warmup, 10, 0.5), 1), 0.2);
}

TEST_F(ScheduleTest, OtherOptimizersThanTheKnownOnesCannotCycleMomentum) {
  torch::optim::Adagrad adagrad({weight_}, torch::optim::AdagradOptions(0.1));
  EXPECT_ERROR(LearningRateSchedule(adagrad, OneCycleRate{.total_steps = 9, .cycle_momentum = true}),
               "expected SGD, RMSprop, Adam or AdamW");
  const LearningRateSchedule plain(adagrad, OneCycleRate{.total_steps = 9});
  EXPECT_DOUBLE_EQ(adagrad.param_groups()[0].options().get_lr(), 0.1 / 25);
}

TEST_F(ScheduleTest, AParameterGroupThatCameLaterIsAnError) {
  LearningRateSchedule schedule(optimizer_, ConstantRate{});
  optimizer_.add_param_group(torch::optim::OptimizerParamGroup({torch::ones({1}).requires_grad_()}));
  EXPECT_ERROR(schedule.advance(StepResult::stepped),
               "expected the 1 parameter groups of construction, got 2");
}

}  // namespace
