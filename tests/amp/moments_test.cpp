// Momentum and moments in bf16: half the memory, the mean of the steps as in fp32.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "fused_support.h"
#include "ulp/amp/optimizer/fused_optimizer.h"

namespace ulp::amp::test {
namespace {

constexpr int64_t kSize = 4096;

/// A parameter whose gradient is 1 in every step.
at::Tensor steady(at::ScalarType type) {
  auto weight = torch::ones({kSize}, type).requires_grad_();
  weight.mutable_grad() = torch::ones({kSize}, type);
  return weight;
}

TEST(Moments, ASecondMomentFollowsWhereRoundingToNearestStalls) {
  // With a gradient of 1 the second moment is 1 - 0.999^t.
  auto weight = steady(at::kFloat);
  FusedOptimizer optimizer({weight}, AdamRule{.lr = 1e-6}, MasterWeights::fp32, 1, MomentFormat::bf16);
  at::Tensor nearest = torch::zeros({1}, at::kBFloat16);
  constexpr int kSteps = 1500;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.step();
    nearest = (nearest.to(at::kFloat) * 0.999 + 0.001).to(at::kBFloat16);
  }
  const double exact = 1 - std::pow(0.999, kSteps);  // 0.777
  const at::Tensor second = state_of(optimizer, weight).exp_avg_sq;
  ASSERT_EQ(second.scalar_type(), at::kBFloat16);
  EXPECT_LT(nearest.item<double>(), 0.6 * exact);
  // A step moves 2^-8 up or not at all: over 1,000 remembered steps elements spread by about 0.04.
  EXPECT_NEAR(second.to(at::kDouble).mean().item<double>(), exact, 5 * 0.05 / std::sqrt(kSize));
  EXPECT_LT(second.to(at::kDouble).std().item<double>(), 0.05);
}

TEST(Moments, EveryRuleTakesTheStepsOfFp32InTheMean) {
  for (const UpdateRule& rule :
       {UpdateRule{SgdRule{.lr = 1e-3, .momentum = 0.9}}, UpdateRule{AdamRule{}}, UpdateRule{AdamWRule{}}}) {
    SCOPED_TRACE(name_of(rule));
    auto wide = steady(at::kFloat), narrow = steady(at::kFloat);
    FusedOptimizer of_wide({wide}, rule),
        of_narrow({narrow}, rule, MasterWeights::fp32, 1, MomentFormat::bf16);
    for (int step = 0; step < 50; ++step) {
      of_wide.step();
      of_narrow.step();
    }
    const double moved = 1 - wide.mean().item<double>();
    EXPECT_GT(moved, 0.01);
    EXPECT_NEAR(1 - narrow.mean().item<double>(), moved, 2e-3 * moved);
    EXPECT_FALSE(torch::equal(wide, narrow));
  }
}

TEST(Moments, RoundingDependsOnSeedButNotOnThreads) {
  const int threads = at::get_num_threads();
  const auto run = [](uint64_t seed, int count) {
    at::set_num_threads(count);
    Tensors parameters = make_parameters(at::kBFloat16);
    FusedOptimizer optimizer(parameters, AdamWRule{}, MasterWeights::split, seed, MomentFormat::bf16);
    for (uint64_t step = 0; step < 3; ++step) {
      set_gradients(parameters, step);
      optimizer.step();
    }
    return state_of(optimizer, parameters[4]).exp_avg;
  };
  const at::Tensor once = run(1, 1), again = run(1, 3), other = run(2, 2);
  at::set_num_threads(threads);
  EXPECT_TRUE(torch::equal(once, again));
  EXPECT_FALSE(torch::equal(once, other));
}

TEST(Moments, WeightsAndMomentsRoundIndependently) {
  // Both lie half way between two bf16 numbers after the first step.
  auto weight = torch::ones({kSize}, at::kBFloat16).requires_grad_();
  weight.mutable_grad() = torch::full({kSize}, 1 + 0x1p-8f);
  FusedOptimizer optimizer({weight}, SgdRule{.lr = 0x1p-9 / (1 + 0x1p-8), .momentum = 0.9},
                           MasterWeights::stochastic, 1, MomentFormat::bf16);
  optimizer.step();
  const at::Tensor down = weight.detach().lt(1), low = state_of(optimizer, weight).momentum_buffer.eq(1);
  const double deviation = 0.5 * std::sqrt(kSize);
  EXPECT_NEAR(down.sum().item<double>(), kSize / 2.0, 5 * deviation);
  EXPECT_NEAR(low.sum().item<double>(), kSize / 2.0, 5 * deviation);
  EXPECT_NEAR(down.eq(low).sum().item<double>(), kSize / 2.0, 5 * deviation);
}

TEST(Moments, NamesAreFound) {
  for (MomentFormat moments :
       {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::int8, MomentFormat::int4})
    EXPECT_EQ(find_moments(to_string(moments)), moments);
  EXPECT_ERROR(find_moments("fp8"), "expected moments fp32, bf16, int8 or int4, got 'fp8'");
}

}  // namespace
}  // namespace ulp::amp::test
