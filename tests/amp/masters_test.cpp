// How weights are kept behind bf16 and fp16 parameters: that naive updates stall, and that each cure works.
#include "fused_support.h"
#include "ulp/amp/optimizer/fused_step.h"

namespace ulp::amp::test {
namespace {

/// `steps` updates of -0.001 each (lr 0.001, gradient 1) from weights of 1.
at::Tensor walk(at::ScalarType type, MasterWeights masters, int steps) {
  auto weight = torch::ones({64}, type).requires_grad_();
  FusedOptimizer optimizer({weight}, SgdRule{.lr = 1e-3}, masters);
  weight.mutable_grad() = torch::ones({64}, type);
  for (int i = 0; i < steps; ++i) optimizer.step();
  return optimizer.master_weight(weight);
}

TEST(Masters, NaiveUpdatesOfLowPrecisionWeightsStall) {
  // An update below half a unit in the last place of the weight changes nothing: 1 + 0.0001 is 1 in fp16.
  for (const auto& [type, lr] : {std::pair{at::kHalf, 1e-4}, std::pair{at::kBFloat16, 1e-3}}) {
    auto weight = torch::ones({4}, type).requires_grad_();
    torch::optim::SGD optimizer({weight}, lr);
    weight.mutable_grad() = torch::ones({4}, type);
    for (int i = 0; i < 500; ++i) optimizer.step();
    EXPECT_TRUE(torch::equal(weight, torch::ones({4}, type))) << weight;
  }
}

TEST(Masters, EveryCureWalksOn) {
  EXPECT_NEAR(walk(at::kHalf, MasterWeights::fp32, 500)[0].item<float>(), 0.5, 1e-5);
  EXPECT_NEAR(walk(at::kBFloat16, MasterWeights::fp32, 500)[0].item<float>(), 0.5, 1e-5);
  EXPECT_NEAR(walk(at::kBFloat16, MasterWeights::split, 500)[0].item<float>(), 0.5, 1e-5);
  // 16 bits: each step is off by up to 2^-17.
  EXPECT_NEAR(walk(at::kBFloat16, MasterWeights::kahan, 500)[0].item<float>(), 0.5, 500 * 0x1p-17);
  // Each weight's error is a random walk with steps of up to 2^-8, of standard deviation under
  // sqrt(500) 2^-9; the mean of 64 stays within five of its own.
  EXPECT_NEAR(walk(at::kBFloat16, MasterWeights::stochastic, 500).mean().item<float>(), 0.5,
              5 * std::sqrt(500.0 / 64) * 0x1p-9);
}

TEST(Masters, AClampReachesTheWeightBehindTheParameter) {
  const at::Tensor values = torch::tensor({-3.0F, -1.0F, -0.5F, 0.25F, 0.99999F, 1.0F, 1.00001F, 2.5F});
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const auto masters :
         {MasterWeights::fp32, MasterWeights::split, MasterWeights::stochastic, MasterWeights::kahan}) {
      if (type == at::kHalf && masters != MasterWeights::fp32) continue;  // there is no other
      auto weight = values.clone().to(type).requires_grad_();
      FusedOptimizer optimizer({weight}, SgdRule{.lr = 1}, masters);
      weight.mutable_grad() = torch::full({8}, -1e-5, type);
      optimizer.step();
      const at::Tensor before = optimizer.master_weight(weight).clone();
      ASSERT_GT(before.max().item<float>(), 1.0F);
      optimizer.clamp(weight, -1, 1);
      EXPECT_TRUE(optimizer.master_weight(weight).equal(before.clamp(-1, 1))) << type;
      EXPECT_LE(weight.abs().max().item<float>(), 1.0F) << type;
      weight.mutable_grad() = torch::zeros({8}, type);
      optimizer.step();
      EXPECT_LE(weight.abs().max().item<float>(), 1.0F) << type << ": the master came back";
    }
  }
  auto weight = torch::ones({2}).requires_grad_();
  FusedOptimizer optimizer({weight}, SgdRule{.lr = 1});
  EXPECT_THROW(optimizer.clamp(torch::ones({2}), -1, 1), Error);
}

class SplitAgainstCopies : public ::testing::TestWithParam<UpdateRule> {};

TEST_P(SplitAgainstCopies, BothHaveTheSameWeightsBitForBit) {
  Tensors copied = make_parameters(at::kBFloat16), split = copies(copied);
  FusedOptimizer with_copies(copied, GetParam(), MasterWeights::fp32);
  FusedOptimizer with_halves(split, GetParam(), MasterWeights::split);
  int64_t ties = 0;
  for (uint64_t step = 0; step < 20; ++step) {
    set_gradients(copied, step);
    set_gradients(split, step);
    fused_step(with_copies, nullptr, {.max_norm = 50.0});
    fused_step(with_halves, nullptr, {.max_norm = 50.0});
    for (size_t i = 0; i + 1 < copied.size(); ++i) {
      const at::Tensor master = with_copies.master_weight(copied[i]);
      ASSERT_TRUE(torch::equal(master, with_halves.master_weight(split[i]))) << step << ' ' << i;
      EXPECT_TRUE(torch::equal(copied[i], master.to(at::kBFloat16)));
      // The parameters differ in exact ties only.
      const at::Tensor tie = (master.view(at::kInt).bitwise_and(0xffff)).eq(0x8000);
      EXPECT_TRUE(torch::equal(copied[i].masked_fill(tie, 0), split[i].masked_fill(tie, 0)));
      ties += tie.sum().item<int64_t>();
    }
  }
  EXPECT_LT(ties, 100);
  EXPECT_FALSE(torch::equal(copied[4].to(at::kFloat), with_copies.master_weight(copied[4])));
  EXPECT_EQ(state_of(with_halves, split[4]).master.scalar_type(), at::kShort);
}

INSTANTIATE_TEST_SUITE_P(Rules, SplitAgainstCopies,
                         ::testing::Values(SgdRule{.lr = 0.01, .momentum = 0.9}, AdamRule{}, AdamWRule{}),
                         [](const auto& info) { return name_of(info.param); });

TEST(Masters, Fp32CopiesTrainAsFp32ParametersDo) {
  Tensors low = make_parameters(at::kBFloat16), full;
  for (const at::Tensor& each : low) full.push_back(each.detach().to(at::kFloat).requires_grad_());
  FusedOptimizer of_low(low, AdamWRule{}), of_full(full, AdamWRule{});
  for (uint64_t step = 0; step < 5; ++step) {
    set_gradients(low, step);
    for (size_t i = 0; i + 1 < low.size(); ++i) full[i].mutable_grad() = low[i].grad().to(at::kFloat);
    of_low.step();
    of_full.step();
  }
  for (size_t i = 0; i < low.size(); ++i)
    EXPECT_TRUE(torch::equal(of_low.master_weight(low[i]), full[i])) << i;
}

TEST(Masters, StochasticRoundingDependsOnSeedAndStepButNotOnThreads) {
  const int threads = at::get_num_threads();
  const auto run = [](uint64_t seed, int count) {
    at::set_num_threads(count);
    Tensors parameters = make_parameters(at::kBFloat16);
    FusedOptimizer optimizer(parameters, SgdRule{.lr = 1e-3}, MasterWeights::stochastic, seed);
    for (uint64_t step = 0; step < 3; ++step) {
      set_gradients(parameters, step);
      optimizer.step();
    }
    return parameters[4].detach();
  };
  const at::Tensor once = run(1, 1), again = run(1, 3), other = run(2, 2);
  at::set_num_threads(threads);
  EXPECT_TRUE(torch::equal(once, again));
  EXPECT_FALSE(torch::equal(once, other));
}

TEST(Masters, NeighboursStepsAndTensorsRoundIndependently) {
  // 1 - 2^-9 lies half way between two bf16 numbers: half of all weights go down, and different ones each
  // time.
  auto a = torch::ones({4096}, at::kBFloat16).requires_grad_(), b = a.detach().clone().requires_grad_();
  FusedOptimizer optimizer({a, b}, SgdRule{.lr = 1}, MasterWeights::stochastic);
  std::vector<at::Tensor> down;
  for (int step = 0; step < 2; ++step) {
    for (at::Tensor* each : {&a, &b}) {
      const torch::NoGradGuard no_grad;
      each->fill_(1);
      each->mutable_grad() = torch::full({4096}, 0x1p-9f).to(at::kBFloat16);
    }
    optimizer.step();
    for (const at::Tensor& each : {a, b}) down.push_back(each.detach().lt(1));
  }
  const double deviation = 0.5 * std::sqrt(4096);
  for (size_t i = 0; i < down.size(); ++i) {
    EXPECT_NEAR(down[i].sum().item<double>(), 2048, 5 * deviation);
    EXPECT_NEAR(down[i].slice(0, 1).eq(down[i].slice(0, 0, 4095)).sum().item<double>(), 2047.5,
                5 * deviation);
    for (size_t k = 0; k < i; ++k)
      EXPECT_NEAR(down[i].eq(down[k]).sum().item<double>(), 2048, 5 * deviation) << i << ' ' << k;
  }
}

TEST(Masters, ResetTakesTheParametersAsTheyAre) {
  for (MasterWeights masters : {MasterWeights::fp32, MasterWeights::split, MasterWeights::kahan}) {
    auto weight = torch::ones({3}, at::kBFloat16).requires_grad_();
    FusedOptimizer optimizer({weight}, SgdRule{.lr = 1e-3}, masters);
    weight.mutable_grad() = torch::ones({3}, at::kBFloat16);
    optimizer.step();
    EXPECT_NEAR(optimizer.master_weight(weight)[0].item<float>(), 0.999, 1e-5) << to_string(masters);
    {
      const torch::NoGradGuard no_grad;
      weight.fill_(2);
    }
    optimizer.reset_masters();
    EXPECT_EQ(optimizer.master_weight(weight)[0].item<float>(), 2);
    optimizer.step();
    EXPECT_NEAR(optimizer.master_weight(weight)[0].item<float>(), 1.999, 2e-5) << to_string(masters);
  }
}

TEST(Masters, MixedParametersHaveMastersWhereTheyNeedThem) {
  auto norm = torch::ones({4}).requires_grad_();
  auto weight = torch::ones({4}, at::kBFloat16).requires_grad_();
  FusedOptimizer optimizer({norm, weight}, AdamWRule{}, MasterWeights::split);
  norm.mutable_grad() = torch::ones({4});
  weight.mutable_grad() = torch::ones({4}, at::kBFloat16);
  optimizer.step();
  EXPECT_FALSE(state_of(optimizer, norm).master.defined());
  EXPECT_TRUE(torch::equal(optimizer.master_weight(norm), optimizer.master_weight(weight)));
}

TEST(Masters, PiecesAtTheirPlacesRoundAsTheWhole) {
  torch::manual_seed(1);
  const at::Tensor whole = torch::randn({1000}).to(at::kBFloat16),
                   other = torch::randn({10}).to(at::kBFloat16);
  const at::Tensor gradient = torch::randn({1000}).to(at::kBFloat16);
  const AdamWRule rule{.lr = 0.01};
  const at::Tensor expected = whole.clone(), first = other.clone();
  FusedOptimizer optimizer({first, expected}, rule, MasterWeights::stochastic, 7, MomentFormat::bf16);
  const at::Tensor low = whole.narrow(0, 0, 384).clone(), high = whole.narrow(0, 384, 616).clone();
  FusedOptimizer pieces({high, low}, rule, MasterWeights::stochastic, 7, MomentFormat::bf16);
  pieces.set_location(low, {.ordinal = 1, .begin = 0});
  pieces.set_location(high, {.ordinal = 1, .begin = 384});
  for (int step = 0; step < 3; ++step) {
    at::Tensor(expected).mutable_grad() = gradient;
    at::Tensor(low).mutable_grad() = gradient.narrow(0, 0, 384);
    at::Tensor(high).mutable_grad() = gradient.narrow(0, 384, 616);
    optimizer.step();
    pieces.step();
    EXPECT_TRUE(torch::equal(torch::cat({low, high}), expected)) << "step " << step;
  }
  EXPECT_SAYS(error_of([&] { pieces.set_location(low, {.begin = 100}); }),
              "expected begin to be a multiple of 128");
  EXPECT_SAYS(error_of([&] { pieces.set_location(other, {}); }), "expected a parameter of this optimizer");
}

}  // namespace
}  // namespace ulp::amp::test
