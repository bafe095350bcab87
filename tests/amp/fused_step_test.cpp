#include "ulp/amp/optimizer/fused_step.h"

#include "constants.h"
#include "fused_support.h"
#include "ulp/amp/scaling/make_scaler.h"

namespace ulp::amp::test {
namespace {

class FusedStep : public ::testing::Test {
 protected:
  /// A scale that is no power of two, so that unscaling rounds.
  FusedStep() { scaler_.scale(torch::zeros({})); }
  Tensors parameters_ = make_parameters();
  FusedOptimizer optimizer_{parameters_, AdamWRule{.lr = 0.01}};
  GradScaler scaler_{{.init_scale = 1000.0, .growth_interval = 2}};
};

double norm_of(const Tensors& parameters) {
  double sum = 0;
  for (const at::Tensor& each : parameters) {
    if (each.grad().defined()) sum += each.grad().to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(sum);
}

TEST_F(FusedStep, EqualsUnscaleClipAndStepOneAfterTheOther) {
  const Tensors before = copies(parameters_);
  Tensors theirs = copies(parameters_);
  torch::optim::AdamW reference(theirs, torch::optim::AdamWOptions(0.01));
  FusedOptimizer separate(copies(parameters_), AdamWRule{.lr = 0.01});
  const Tensors apart = separate.parameters();
  GradScaler scaler({.init_scale = 1000.0});
  scaler.scale(torch::zeros({}));
  for (const Tensors* each : {&std::as_const(parameters_), &std::as_const(theirs), &apart})
    set_gradients(*each, 5, 1000);

  const FusedStepResult got = fused_step(optimizer_, &scaler_, {.max_norm = 2.5});

  scaler.unscale_(reference);
  const double norm = torch::nn::utils::clip_grad_norm_(theirs, 2.5);
  EXPECT_EQ(got.result, StepResult::stepped);
  EXPECT_NEAR(got.grad_norm, norm, 1e-6 * norm);
  EXPECT_NEAR(got.clip_factor, 2.5 / norm, 1e-6);
  ASSERT_LT(got.clip_factor, 0.1);
  ASSERT_EQ(scaler.step(reference), StepResult::stepped);
  // The same with our own unfused steps: bit for bit.
  for (const at::Tensor& each : apart) {
    if (each.grad().defined()) each.grad().mul_(1.0f / 1000.0f).mul_(static_cast<float>(got.clip_factor));
  }
  separate.step();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    EXPECT_TRUE(torch::equal(parameters_[i], apart[i])) << i;
    // LibTorch's norm is rounded to fp32 on the way, and its square root is not exact.
    const at::Tensor update = (parameters_[i] - before[i]).detach().abs();
    const at::Tensor largest = torch::maximum(before[i].detach().abs(), update);
    EXPECT_LE(distance_in_ulp(parameters_[i].detach(), theirs[i].detach(), largest), 2 + ulp_of_sums()) << i;
  }
  scaler_.update();
  EXPECT_EQ(scaler_.growth_tracker(), 1);
}

TEST_F(FusedStep, TheScalerGoesOnAsAfterItsOwnStep) {
  FusedOptimizer other(copies(parameters_), AdamWRule{.lr = 0.01});
  const Tensors theirs = other.parameters();
  GradScaler scaler({.init_scale = 1000.0, .growth_interval = 2});
  scaler.scale(torch::zeros({}));
  for (uint64_t step = 0; step < 12; ++step) {
    const double factor = step % 5 == 3 ? std::numeric_limits<double>::infinity() : scaler.get_scale();
    set_gradients(parameters_, step, factor);
    set_gradients(theirs, step, factor);
    if (step == 7) scaler_.unscale_(optimizer_);
    EXPECT_EQ(fused_step(optimizer_, &scaler_).result, scaler.step(other)) << step;
    scaler_.update();
    scaler.update();
    ASSERT_EQ(scaler_.state_dict(), scaler.state_dict()) << step;
  }
  for (size_t i = 0; i < theirs.size(); ++i) EXPECT_TRUE(torch::equal(parameters_[i], theirs[i])) << i;
}

TEST_F(FusedStep, ASkippedStepChangesNothingAndLeavesUnscaledGradients) {
  set_gradients(parameters_, 1, 1000);
  parameters_[1].mutable_grad()[2][1] = -kInf;
  const Tensors before = copies(parameters_);
  const FusedStepResult got = fused_step(optimizer_, &scaler_, {.max_norm = 1.0});
  EXPECT_EQ(got.result, StepResult::skipped_nonfinite);
  EXPECT_FALSE(std::isfinite(got.grad_norm));
  EXPECT_TRUE(optimizer_.state().empty());
  for (size_t i = 0; i + 1 < before.size(); ++i) {
    EXPECT_TRUE(torch::equal(parameters_[i], before[i]));
    EXPECT_TRUE(torch::equal(parameters_[i].grad(), before[i].grad() * (1.0f / 1000.0f)));
  }
  scaler_.update();
  EXPECT_EQ(scaler_.get_scale(), 500);
}

TEST_F(FusedStep, ASkippedStepUnscalesGradientsOfEveryTypeByOneRounding) {
  torch::manual_seed(3);
  const float inverse = 1.0f / 1000.0f;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    Tensors parameters = {torch::zeros({7, 5}, type).requires_grad_(),
                          torch::zeros({2}, type).requires_grad_(), torch::zeros({4}, type).requires_grad_()};
    FusedOptimizer optimizer(parameters, SgdRule{.lr = 1});
    const at::Tensor scaled = (torch::randn({5, 7}) * 1000).to(type).t();
    const at::Tensor negated = torch::randn({4}).to(type);
    parameters[0].mutable_grad() = scaled.clone();
    parameters[1].mutable_grad() = torch::tensor({1.0f, kInf}).to(type);
    parameters[2].mutable_grad() = at::_neg_view(negated.clone());
    GradScaler scaler({.init_scale = 1000.0});
    scaler.scale(torch::zeros({}));
    ASSERT_EQ(fused_step(optimizer, &scaler).result, StepResult::skipped_nonfinite);
    const auto rounded_once = [&](const at::Tensor& gradient) {
      return (gradient.to(at::kFloat) * inverse).to(type);
    };
    EXPECT_TRUE(torch::equal(parameters[0].grad(), rounded_once(scaled))) << type;
    EXPECT_TRUE(torch::equal(parameters[1].grad(), rounded_once(torch::tensor({1.0f, kInf})))) << type;
    EXPECT_TRUE(torch::equal(parameters[2].grad(), rounded_once(-negated))) << type;
  }
}

TEST_F(FusedStep, AfterUnscaleGradientsAreTakenAsTheyAre) {
  set_gradients(parameters_, 1, 1000);
  scaler_.unscale_(optimizer_);
  const double norm = norm_of(parameters_);
  const FusedStepResult got = fused_step(optimizer_, &scaler_, {.max_norm = 2 * norm});
  EXPECT_NEAR(got.grad_norm, norm, 1e-12 * norm);
  EXPECT_EQ(got.clip_factor, 1);
  EXPECT_NEAR(state_of(optimizer_, parameters_[0]).exp_avg.item<float>(),
              0.1 * parameters_[0].grad().item<float>(), 1e-7);
}

TEST_F(FusedStep, WithoutAScalerTheStepIsChecked) {
  set_gradients(parameters_, 1);
  EXPECT_TRUE(std::isnan(fused_step(optimizer_, nullptr).grad_norm));
  parameters_[1].mutable_grad()[0][0] = NAN;
  const Tensors before = copies(parameters_);
  EXPECT_EQ(fused_step(optimizer_, nullptr, {.check_finite = true}).result, StepResult::skipped_nonfinite);
  EXPECT_EQ(fused_step(optimizer_, nullptr, {.max_norm = 1.0}).result, StepResult::skipped_nonfinite);
  EXPECT_TRUE(torch::equal(parameters_[4], before[4]));
  GradScaler disabled({.enabled = false});
  EXPECT_EQ(fused_step(optimizer_, &disabled).result, StepResult::stepped);
  EXPECT_TRUE(parameters_[1].isnan().any().item<bool>()) << "nothing asked for a check";
}

TEST_F(FusedStep, ALossThatIsNotFiniteSkipsFiniteGradients) {
  set_gradients(parameters_, 1, 1000);
  ASSERT_EQ(fused_step(optimizer_, &scaler_).result, StepResult::stepped);
  scaler_.update();
  set_gradients(parameters_, 2, 1000);
  const Tensors before = copies(parameters_);
  const at::Tensor moment = state_of(optimizer_, parameters_[0]).exp_avg.clone();
  for (GradScaler* scaler : {&scaler_, static_cast<GradScaler*>(nullptr)})
    EXPECT_EQ(fused_step(optimizer_, scaler, {.found_inf = true}).result, StepResult::skipped_nonfinite);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(parameters_[i], before[i])) << i;
  EXPECT_TRUE(state_of(optimizer_, parameters_[0]).exp_avg.equal(moment));
  scaler_.update();
  EXPECT_EQ(scaler_.get_scale(), 500);
  EXPECT_EQ(scaler_.growth_tracker(), 0);
}

TEST_F(FusedStep, DialectsThatJudgeUnscaledGradientsAreObeyed) {
  // 3e38 / 0.5 is infinite: Keras looks after unscaling, PyTorch before.
  for (const auto& [dialect, expected] :
       {std::pair{"keras2", StepResult::skipped_nonfinite}, std::pair{"pytorch", StepResult::stepped}}) {
    Tensors parameters = {torch::zeros({3}).requires_grad_()};
    FusedOptimizer optimizer(parameters, SgdRule{.lr = 1});
    parameters[0].mutable_grad() = torch::tensor({1.0f, 3e38f, 0.0f});
    GradScaler scaler = make_scaler(dialect, {.init_scale = 0.5});
    scaler.scale(torch::zeros({}));
    EXPECT_EQ(fused_step(optimizer, &scaler).result, expected) << dialect;
  }
}

TEST_F(FusedStep, AScaleWithoutAFiniteInverseSkipsFiniteGradients) {
  const Tensors before = copies(parameters_);
  for (const bool unscaled_first : {false, true}) {
    scaler_.update(0x1p-140);
    set_gradients(parameters_, 1);
    if (unscaled_first) scaler_.unscale_(optimizer_);
    EXPECT_EQ(fused_step(optimizer_, &scaler_, {.max_norm = 1.0}).result, StepResult::skipped_underflow);
    scaler_.update();
    EXPECT_EQ(scaler_.get_scale(), unscaled_first ? 0x1p-139 : 0x1p-140) << "grows as after steps";
    EXPECT_TRUE(optimizer_.state().empty());
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(parameters_[i], before[i])) << i;
  }
}

TEST_F(FusedStep, NoGradientsIsAVerdict) {
  EXPECT_EQ(fused_step(optimizer_, &scaler_, {.max_norm = 1.0}).result, StepResult::no_gradients);
  scaler_.update();
  EXPECT_EQ(scaler_.get_scale(), 1000);
  EXPECT_EQ(scaler_.growth_tracker(), 0);
  EXPECT_EQ(fused_step(optimizer_, nullptr).result, StepResult::no_gradients);
  EXPECT_TRUE(optimizer_.state().empty());
}

TEST_F(FusedStep, CallsOutOfOrderAndBadOptionsAreErrors) {
  set_gradients(parameters_, 1, 1000);
  GradScaler fresh;
  EXPECT_SAYS(error_of([&] { fused_step(optimizer_, &fresh); }), "expected scale(loss) to have been called");
  fused_step(optimizer_, &scaler_);
  EXPECT_SAYS(error_of([&] { fused_step(optimizer_, &scaler_); }), "one step between two updates");
  EXPECT_SAYS(error_of([&] { scaler_.step(optimizer_); }), "one call between two updates");
  EXPECT_SAYS(error_of([&] { scaler_.unscale_(optimizer_); }), "before step()");
  for (double bad : {0.0, -1.0, static_cast<double>(NAN)})
    EXPECT_SAYS(error_of([&] { fused_step(optimizer_, nullptr, {.max_norm = bad}); }),
                "expected max_norm > 0");
}

TEST_F(FusedStep, WhatAllProcessesMeasureDecidesForEach) {
  set_gradients(parameters_, 1);
  const auto told = [&](double square_sum, int64_t gradients) {
    return FusedStepOptions{.max_norm = 2.0, .measure = [=] { return GradientTotal{square_sum, gradients}; }};
  };
  scaler_.scale(torch::zeros({}));
  const double scale = scaler_.get_scale();
  const auto done = fused_step(optimizer_, &scaler_, told(16 * scale * scale, 3));
  EXPECT_EQ(done.result, StepResult::stepped);
  EXPECT_NEAR(done.grad_norm, 4, 1e-6);
  EXPECT_NEAR(done.clip_factor, 0.5, 1e-6);
  scaler_.update();
  const Tensors before = copies(parameters_);
  const auto skipped = fused_step(optimizer_, &scaler_, told(INFINITY, 3));
  EXPECT_EQ(skipped.result, StepResult::skipped_nonfinite) << "another process has an infinity";
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(before[i], parameters_[i]));
  scaler_.update();
  EXPECT_EQ(fused_step(optimizer_, nullptr, told(0, 0)).result, StepResult::no_gradients);
  optimizer_.zero_grad();
  EXPECT_EQ(fused_step(optimizer_, nullptr, told(1, 1)).result, StepResult::stepped)
      << "it goes along with the others where it has no gradients itself";
}

TEST_F(FusedStep, GradientSquareSumIsOfAllTensors) {
  const Tensors tensors = {torch::full({3}, 2.0), torch::full({2, 2}, 0.5).to(at::kBFloat16)};
  EXPECT_EQ(gradient_square_sum(tensors), 13);
  EXPECT_EQ(gradient_square_sum({}), 0);
  EXPECT_SAYS(error_of([&] {
                gradient_square_sum({torch::ones({4, 4}).narrow(1, 0, 2)});
              }),
              "dense in memory");
  EXPECT_SAYS(error_of([&] { gradient_square_sum({torch::ones({4}, at::kLong)}); }),
              "expected an fp32, bf16 or");
}

TEST_F(FusedStep, Fp16GradientsAreUnscaledInFp32) {
  Tensors halves = {torch::zeros({3}, at::kHalf).requires_grad_()};
  FusedOptimizer optimizer(halves, SgdRule{.lr = 1});
  // 2^-20 and 2^-24 in units of the scale: in fp16 they would have lost bits or vanished.
  halves[0].mutable_grad() = torch::tensor({0x1p-10f, 3 * 0x1p-14f, 0x1p-18f}).to(at::kHalf);
  GradScaler scaler({.init_scale = 1024.0});
  scaler.scale(torch::zeros({}));
  EXPECT_EQ(fused_step(optimizer, &scaler).result, StepResult::stepped);
  EXPECT_TRUE(
      torch::equal(optimizer.master_weight(halves[0]), torch::tensor({-0x1p-20f, -3 * 0x1p-24f, -0x1p-28f})));
}

}  // namespace
}  // namespace ulp::amp::test
