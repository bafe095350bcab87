#include "ulp/amp/optimizer/accumulate.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "letters.h"
#include "ulp/amp/optimizer/schedule.h"
#include "ulp/amp/scaling/make_scaler.h"

namespace {

using ulp::amp::GradientAccumulator;
using ulp::amp::GradScaler;
using ulp::amp::StepResult;

TEST(Accumulate, PositionsComeRound) {
  GradientAccumulator accumulator(3);
  std::string first, last;
  for (int i = 0; i < 7; ++i) {
    first += accumulator.is_first() ? '1' : '0';
    last += accumulator.is_last() ? '1' : '0';
    accumulator.advance();
  }
  EXPECT_EQ(first, "1001001");
  EXPECT_EQ(last, "0010010");
  GradientAccumulator one(1);
  EXPECT_TRUE(one.is_first() && one.is_last());
  one.advance();
  EXPECT_TRUE(one.is_first() && one.is_last());
}

TEST(Accumulate, BadUseIsAnError) {
  EXPECT_ERROR(GradientAccumulator(0), "expected micro_batches >= 1, got 0");
  EXPECT_ERROR(GradientAccumulator(-4), "expected micro_batches >= 1, got -4");
  GradientAccumulator accumulator(4);
  EXPECT_ERROR(accumulator.begin(0), "expected micro_batches >= 1");
  accumulator.advance();
  EXPECT_ERROR(accumulator.begin(2), "got it after 1 of 4 micro-batches");
  EXPECT_ERROR(accumulator.normalize(torch::Tensor()), "undefined");
  EXPECT_ERROR(accumulator.normalize(torch::ones({}, torch::kLong)),
               "expected a floating-point loss, got long");
}

class AccumulatedTraining : public ::testing::Test {
 protected:
  /// One step over `data`, cut into `count` micro-batches of its rows.
  StepResult step(const torch::Tensor& data, int64_t count) {
    accumulator_.begin(count);
    for (const torch::Tensor& rows : data.chunk(count)) {
      if (accumulator_.is_first()) optimizer_.zero_grad();
      const auto loss = (rows.mv(weight_) - 1).square().mean();
      scaler_.scale(accumulator_.normalize(loss)).backward();
      if (accumulator_.is_last()) result_ = scaler_.step(optimizer_);
      accumulator_.advance();
    }
    scaler_.update();
    return result_;
  }

  torch::Tensor weight_ = torch::full({3}, 0.25, torch::kDouble).requires_grad_();
  torch::optim::SGD optimizer_{{weight_}, torch::optim::SGDOptions(0.0625)};
  GradScaler scaler_ = ulp::amp::make_scaler("static:8");
  GradientAccumulator accumulator_{1};
  StepResult result_ = StepResult::no_gradients;
};

TEST_F(AccumulatedTraining, MicroBatchesGiveTheGradientOfTheWholeBatch) {
  // Small whole numbers: every product and sum is exact, so the bits must agree.
  torch::manual_seed(7);
  const auto data = torch::randint(-4, 5, {16, 3}, torch::kDouble);
  step(data, 1);
  const auto whole = weight_.grad().clone();
  for (int64_t count : {2, 4, 8, 16}) {
    {
      const torch::NoGradGuard guard;
      weight_.fill_(0.25);
    }
    EXPECT_EQ(step(data, count), StepResult::stepped);
    EXPECT_TRUE(torch::equal(weight_.grad(), whole)) << count;
  }
}

TEST_F(AccumulatedTraining, OneBadMicroBatchSkipsTheWholeStepAndShrinksOnce) {
  scaler_ = ulp::amp::make_scaler("pytorch", {.init_scale = 8});
  for (int64_t bad = 0; bad < 4; ++bad) {
    auto data = torch::ones({4, 3}, torch::kDouble);
    data[bad][1] = INFINITY;
    EXPECT_EQ(step(data, 4), StepResult::skipped_nonfinite) << bad;
    EXPECT_EQ(scaler_.get_scale(), std::ldexp(8.0, -1 - static_cast<int>(bad)));
  }
  EXPECT_TRUE(torch::equal(weight_, torch::full({3}, 0.25, torch::kDouble)));
  EXPECT_EQ(step(torch::ones({4, 3}, torch::kDouble), 4), StepResult::stepped);
}

TEST_F(AccumulatedTraining, ALastShorterStepHasItsOwnNumber) {
  accumulator_.begin(3);
  EXPECT_EQ(accumulator_.normalize(torch::full({}, 6.0)).item<double>(), 2);
  accumulator_.begin(2);
  EXPECT_EQ(accumulator_.micro_batches(), 2);
  EXPECT_EQ(accumulator_.normalize(torch::full({}, 6.0)).item<double>(), 3);
}

/// Calls of the op that reads a number back from a tensor, on a device a synchronisation.
int64_t read_backs = 0;

std::unique_ptr<at::ObserverContext> count_read_backs(const at::RecordFunction& function) {
  if (std::string(function.name()) == "aten::_local_scalar_dense") ++read_backs;
  return nullptr;
}

TEST_F(AccumulatedTraining, NothingIsReadBackBeforeTheLastMicroBatch) {
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count_read_backs));
  accumulator_.begin(3);
  for (int i = 0; i < 3; ++i) {
    read_backs = 0;
    scaler_.scale(accumulator_.normalize(weight_.sum())).backward();
    EXPECT_EQ(read_backs, 0) << i;
    if (accumulator_.is_last()) scaler_.step(optimizer_);
    accumulator_.advance();
  }
  at::removeCallback(handle);
  EXPECT_GT(read_backs, 0) << "the step itself must be seen";
}

}  // namespace
