#include "ulp/amp/scaling/grad_scaler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "constants.h"
#include "letters.h"
#include "ulp/amp/autocast/autocast.h"

namespace {

using ulp::amp::GradScaler;
using ulp::amp::GradScalerOptions;
using ulp::amp::StepResult;

class GradScalerTest : public ::testing::Test {
 protected:
  void backward(float factor = 1) {
    optimizer_.zero_grad();
    scaler_.scale((weight_ * factor).sum()).backward();
  }
  torch::Tensor weight_ = torch::ones({2}).requires_grad_();
  torch::optim::SGD optimizer_{{weight_}, torch::optim::SGDOptions(0.5)};
  GradScaler scaler_{{.init_scale = 8.0}};
};

TEST_F(GradScalerTest, DefaultsArePyTorchs) {
  const ulp::amp::ScalerState defaults{{"scale", 65536.0},
                                       {"growth_factor", 2.0},
                                       {"backoff_factor", 0.5},
                                       {"growth_interval", 2000.0},
                                       {"_growth_tracker", 0.0}};
  EXPECT_EQ(GradScaler().state_dict(), defaults);
}

TEST_F(GradScalerTest, AGradientThatAnOptimizerListsTwiceIsUnscaledOnce) {
  auto tied = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({tied, tied}, torch::optim::SGDOptions(0.1));
  GradScaler scaler;
  scaler.scale((tied * torch::tensor({1.0F, 2.0F, 3.0F})).sum()).backward();
  scaler.unscale_(optimizer);
  EXPECT_TRUE(torch::equal(tied.grad(), torch::tensor({1.0F, 2.0F, 3.0F})));
}

TEST_F(GradScalerTest, AStepUsesUnscaledGradients) {
  backward(3);
  EXPECT_EQ(weight_.grad()[0].item<float>(), 24);
  EXPECT_EQ(scaler_.step(optimizer_), StepResult::stepped);
  EXPECT_EQ(weight_.grad()[0].item<float>(), 3);
  EXPECT_EQ(weight_[0].item<float>(), 1 - 0.5f * 3);
  scaler_.update();
  EXPECT_EQ(scaler_.get_scale(), 8);
  EXPECT_EQ(scaler_.growth_tracker(), 1);
}

TEST_F(GradScalerTest, ASkippedStepLeavesWeightsAndShowsUnscaledGradients) {
  backward(3);
  weight_.mutable_grad()[1] = -kInf;
  EXPECT_EQ(scaler_.step(optimizer_), StepResult::skipped_nonfinite);
  EXPECT_TRUE(torch::equal(weight_, torch::ones({2})));
  EXPECT_EQ(weight_.grad()[0].item<float>(), 3);
  EXPECT_EQ(weight_.grad()[1].item<float>(), -kInf);
  scaler_.update();
  EXPECT_EQ(scaler_.get_scale(), 4);
}

TEST_F(GradScalerTest, EveryPositionAndEveryKindOfNonFiniteIsFound) {
  for (float bad : {kInf, -kInf, std::nanf("")}) {
    for (int64_t position = 0; position < 37; ++position) {
      auto parameter = torch::zeros({37}).requires_grad_();
      torch::optim::SGD optimizer({parameter}, 0.1);
      GradScaler scaler;
      scaler.scale(parameter.sum()).backward();
      parameter.mutable_grad()[position] = bad;
      ASSERT_EQ(scaler.step(optimizer), StepResult::skipped_nonfinite) << bad << " at " << position;
    }
  }
}

TEST_F(GradScalerTest, AllOptimizersShareTheScaleButNotTheVerdict) {
  auto other = torch::ones({1}).requires_grad_();
  torch::optim::SGD second({other}, 0.5);
  backward();
  scaler_.scale(other.sum() * kInf).backward();
  EXPECT_EQ(scaler_.step(optimizer_), StepResult::stepped);
  EXPECT_EQ(scaler_.step(second), StepResult::skipped_nonfinite);
  scaler_.update();
  EXPECT_EQ(scaler_.get_scale(), 4);
}

TEST_F(GradScalerTest, AnOptimizerThatWasOnlyUnscaledCountsInTheUpdate) {
  backward(kInf);
  scaler_.unscale_(optimizer_);
  scaler_.update();
  EXPECT_EQ(scaler_.get_scale(), 4);
}

TEST_F(GradScalerTest, NoGradientsIsAVerdictAndKeepsTheScale) {
  scaler_.scale(weight_.sum());
  EXPECT_EQ(scaler_.step(optimizer_), StepResult::no_gradients);
  scaler_.update();
  EXPECT_EQ(scaler_.get_scale(), 8);
  EXPECT_EQ(scaler_.growth_tracker(), 0);
  EXPECT_TRUE(torch::equal(weight_, torch::ones({2})));
}

// PyTorch steps there, and every weight is NaN.
TEST_F(GradScalerTest, AScaleWithoutAFiniteInverseSkipsFiniteGradients) {
  for (const bool unscaled_first : {false, true}) {
    for (const double scale : {0x1p-149, 0x1p-128}) {
      scaler_ = GradScaler({.init_scale = scale});
      backward(3);
      if (unscaled_first) scaler_.unscale_(optimizer_);
      EXPECT_EQ(scaler_.step(optimizer_), StepResult::skipped_underflow) << scale;
      EXPECT_TRUE(torch::equal(weight_, torch::ones({2})));
      scaler_.update();
      EXPECT_EQ(scaler_.get_scale(), scale) << "as after a step";
      EXPECT_EQ(scaler_.growth_tracker(), 1);
    }
  }
  backward(kInf);
  EXPECT_EQ(scaler_.step(optimizer_), StepResult::skipped_nonfinite);
  scaler_ = GradScaler({.init_scale = 0x1p-149});
  backward(kInf);
  scaler_.step(optimizer_);
  scaler_.update();
  ASSERT_EQ(scaler_.get_scale(), 0);
  backward();
  EXPECT_EQ(scaler_.step(optimizer_), StepResult::skipped_underflow);
  EXPECT_TRUE(torch::equal(weight_, torch::ones({2})));
}

TEST_F(GradScalerTest, TheSmallestScaleWithAFiniteInverseSteps) {
  scaler_ = GradScaler({.init_scale = 0x1p-128 + 0x1p-149});
  backward();
  EXPECT_EQ(scaler_.step(optimizer_), StepResult::stepped);
  EXPECT_TRUE(weight_.isfinite().all().item<bool>());
}

TEST_F(GradScalerTest, CallsOutOfOrderAreErrors) {
  EXPECT_ERROR(scaler_.step(optimizer_),
               "[amp.GradScaler.step] expected scale(loss) to have been called before");
  EXPECT_ERROR(scaler_.unscale_(optimizer_), "expected scale(loss)");
  EXPECT_ERROR(scaler_.update(), "expected scale(loss)");
  backward();
  EXPECT_ERROR(scaler_.update(), "expected unscale_() or step() since the last update");
  scaler_.unscale_(optimizer_);
  EXPECT_ERROR(scaler_.unscale_(optimizer_), "got a second one");
  scaler_.step(optimizer_);
  EXPECT_ERROR(scaler_.unscale_(optimizer_), "got it after step()");
  EXPECT_ERROR(scaler_.step(optimizer_), "got a second one");
  scaler_.update();
  EXPECT_ERROR(scaler_.update(), "expected unscale_() or step() since the last update");
  backward();
  EXPECT_EQ(scaler_.step(optimizer_), StepResult::stepped) << "update() makes the optimizer ready again";
}

TEST_F(GradScalerTest, UnscalingTwiceWouldHaveBeenVisible) {
  backward(3);
  scaler_.unscale_(optimizer_);
  scaler_.step(optimizer_);
  EXPECT_EQ(weight_.grad()[0].item<float>(), 3);
}

TEST_F(GradScalerTest, ScaleRefusesWhatIsNoLoss) {
  EXPECT_ERROR(scaler_.scale(torch::ones({}, torch::kLong)), "expected a floating-point loss, got long");
  EXPECT_ERROR(scaler_.scale(torch::Tensor()), "undefined");
  EXPECT_ERROR(scaler_.update(), "expected scale(loss)") << "a refused loss does not count";
}

TEST_F(GradScalerTest, ScaleTakesSeveralLossesAndPromotesScalars) {
  const auto scaled = scaler_.scale({torch::ones({}), torch::ones({2}, torch::kDouble)});
  ASSERT_EQ(scaled.size(), 2u);
  EXPECT_EQ(scaled[0].item<float>(), 8);
  EXPECT_EQ(scaled[1].scalar_type(), torch::kDouble);
  GradScaler big;
  EXPECT_EQ(big.scale(torch::ones({}, torch::kHalf)).item<float>(), 65536) << "65536 does not fit into fp16";
}

TEST_F(GradScalerTest, Fp16ParametersAreRefusedBeforeAnythingChanges) {
  auto half = torch::ones({2}, torch::kHalf).requires_grad_();
  torch::optim::SGD optimizer({weight_, half}, 0.1);
  scaler_.scale((weight_ + half).sum()).backward();
  EXPECT_ERROR(scaler_.unscale_(optimizer), "got fp16 for parameter 1 of group 0");
  EXPECT_EQ(weight_.grad()[0].item<float>(), 8);
  EXPECT_ERROR(scaler_.step(optimizer), "got fp16") << "the failed call has not moved the stage";
}

TEST_F(GradScalerTest, SeveralDtypesAndUnusedParametersInOneOptimizer) {
  auto bf16 = torch::ones({3}, torch::kBFloat16).requires_grad_();
  auto fp64 = torch::ones({3}, torch::kDouble).requires_grad_();
  auto unused = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({weight_, unused, bf16, fp64}, 0.1);
  scaler_.scale(weight_.sum() + bf16.sum() + fp64.sum()).backward();
  EXPECT_EQ(scaler_.step(optimizer), StepResult::stepped);
  for (const auto& parameter : {weight_, bf16, fp64}) EXPECT_EQ(parameter.grad()[0].item<double>(), 1);
  EXPECT_FALSE(unused.grad().defined());
}

TEST_F(GradScalerTest, SparseGradientsCountCoalesced) {
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true));
  torch::optim::SGD optimizer({embedding->weight}, 1.0);
  const auto row_before = embedding->weight.detach()[1].clone();
  scaler_.scale(embedding(torch::tensor({1, 1, 3})).sum()).backward();
  ASSERT_TRUE(embedding->weight.grad().is_sparse());
  EXPECT_EQ(scaler_.step(optimizer), StepResult::stepped);
  EXPECT_TRUE(torch::allclose(embedding->weight.detach()[1], row_before - 2));
  scaler_.update();

  // Two finite values whose sum, the gradient the row gets, is infinite.
  const auto values = torch::full({2, 2}, 3e38);
  embedding->weight.mutable_grad() = torch::sparse_coo_tensor(torch::tensor({{1, 1}}), values, {4, 2});
  EXPECT_EQ(scaler_.step(optimizer), StepResult::skipped_nonfinite);
}

TEST_F(GradScalerTest, ADisabledScalerDoesNothing) {
  GradScaler off({.init_scale = -1, .growth_factor = 0, .enabled = false});
  const auto loss = weight_.sum();
  EXPECT_TRUE(off.scale(loss).is_same(loss));
  loss.backward();
  off.unscale_(optimizer_);
  EXPECT_EQ(off.step(optimizer_), StepResult::stepped);
  off.update();
  off.update(-3);
  EXPECT_EQ(off.get_scale(), 1);
  EXPECT_FALSE(off.is_enabled());
  EXPECT_EQ(weight_[0].item<float>(), 0.5f);
  EXPECT_TRUE(off.state_dict().empty());
  off.load_state_dict({});
  EXPECT_ERROR(scaler_.load_state_dict(off.state_dict()), "got an empty one");
}

TEST_F(GradScalerTest, OptionsOutOfRangeAreErrorsThatNameTheField) {
  EXPECT_ERROR(GradScaler({.init_scale = 0}), "expected a scale > 0");
  EXPECT_ERROR(GradScaler({.init_scale = 1e39}), "finite in fp32");
  EXPECT_ERROR(GradScaler({.init_scale = std::nan("")}), "expected a scale > 0");
  EXPECT_ERROR(GradScaler({.growth_factor = -2}), "growth_factor > 1, got -2");
  EXPECT_ERROR(GradScaler({.growth_factor = 1}), "growth_factor > 1");
  EXPECT_ERROR(GradScaler({.backoff_factor = 1}), "backoff_factor between 0 and 1");
  EXPECT_ERROR(GradScaler({.backoff_factor = -0.5}), "backoff_factor between 0 and 1");
  EXPECT_ERROR(GradScaler({.growth_interval = 0}), "growth_interval >= 1");
}

TEST_F(GradScalerTest, AManualScaleMustBeUsable) {
  backward();
  for (double bad : {0.0, -1.0, 1e39, std::nan("")})
    EXPECT_ERROR(scaler_.update(bad), "expected a scale > 0") << bad;
  EXPECT_EQ(scaler_.get_scale(), 8);
}

TEST_F(GradScalerTest, DamagedStatesAreErrorsAndChangeNothing) {
  const auto good = GradScaler().state_dict();
  const auto refused = [&](const char* name, double value, const char* part) {
    auto state = good;
    state[name] = value;
    EXPECT_ERROR(scaler_.load_state_dict(state), part);
  };
  refused("scale", -1, "expected a scale > 0");
  refused("scale", std::nan(""), "expected a scale > 0");
  refused("growth_interval", 2.5, "whole number");
  refused("growth_interval", -1, "growth_interval >= 1");
  refused("_growth_tracker", 1e300, "whole number");
  refused("_growth_tracker", -1, "tracker >= 0");
  refused("backoff_factor", 2, "backoff_factor");
  refused("hysteresis", 2, "of another dialect");
  auto incomplete = good;
  incomplete.erase("growth_factor");
  EXPECT_ERROR(scaler_.load_state_dict(incomplete), "expected the entries _growth_tracker, backoff_factor");
  EXPECT_ERROR(scaler_.load_state_dict(GradScaler(8.0, ulp::amp::StaticScale{}).state_dict()),
               "of another dialect");
  EXPECT_EQ(scaler_.state_dict(), GradScaler({.init_scale = 8.0}).state_dict());
}

TEST_F(GradScalerTest, AScaleThatShrankToZeroComesBack) {
  const ulp::amp::ScalePolicy policies[] = {ulp::amp::PyTorchScale{}, ulp::amp::Keras3Scale{},
                                            ulp::amp::ApexScale{}};
  for (const ulp::amp::ScalePolicy& policy : policies) {
    scaler_ = GradScaler(65536.0, policy);
    for (int i = 0; i < 170; ++i) {
      backward(kInf);
      scaler_.step(optimizer_);
      scaler_.update();
    }
    ASSERT_EQ(scaler_.get_scale(), 0) << scaler_.dialect();
    GradScaler restored(65536.0, policy);
    restored.load_state_dict(scaler_.state_dict());
    EXPECT_EQ(restored.get_scale(), 0) << restored.dialect();
    EXPECT_EQ(restored.state_dict(), scaler_.state_dict());
  }
  GradScaler fixed(8.0, ulp::amp::StaticScale{});
  auto state = fixed.state_dict();
  state["scale"] = 0;
  EXPECT_ERROR(fixed.load_state_dict(state), "expected a scale > 0");
}

TEST_F(GradScalerTest, AStaticScaleSkipsButNeverMoves) {
  scaler_ = GradScaler(8.0, ulp::amp::StaticScale{});
  for (float factor : {1.0f, kInf, 1.0f}) {
    backward(factor);
    EXPECT_EQ(scaler_.step(optimizer_),
              std::isinf(factor) ? StepResult::skipped_nonfinite : StepResult::stepped);
    scaler_.update();
    EXPECT_EQ(scaler_.get_scale(), 8);
  }
  GradScaler restored(1.0, ulp::amp::StaticScale{});
  restored.load_state_dict(scaler_.state_dict());
  EXPECT_EQ(restored.get_scale(), 8);
}

// The reason for all of it: without scaling this gradient is lost in fp16, with scaling it arrives.
TEST_F(GradScalerTest, RescuesAGradientThatFp16WouldFlushToZero) {
  const auto gradient_with = [](GradScaler& scaler) {
    auto linear = torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false));
    torch::optim::SGD optimizer(linear->parameters(), 0.1);
    torch::Tensor y;
    {
      const ulp::amp::Autocast guard(torch::kCPU, torch::kHalf);
      y = linear(torch::ones({1, 1}));
    }
    scaler.scale(y.to(torch::kFloat).sum() * 0x1p-26).backward();
    EXPECT_EQ(scaler.step(optimizer), StepResult::stepped);
    return linear->weight.grad().item<double>();
  };
  GradScaler off({.enabled = false}), on;
  EXPECT_EQ(gradient_with(off), 0);
  EXPECT_EQ(gradient_with(on), 0x1p-26);
}

TEST(StepResult, HasAName) {
  EXPECT_STREQ(ulp::amp::to_string(StepResult::stepped), "stepped");
  EXPECT_STREQ(ulp::amp::to_string(StepResult::skipped_nonfinite), "skipped_nonfinite");
  EXPECT_STREQ(ulp::amp::to_string(StepResult::skipped_underflow), "skipped_underflow");
  EXPECT_STREQ(ulp::amp::to_string(StepResult::no_gradients), "no_gradients");
}

}  // namespace
