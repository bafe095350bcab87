#include "ulp/amp/scaling/make_scaler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <concepts>

#include "letters.h"

namespace {

using ulp::amp::GradScaler;
using ulp::amp::make_scaler;
using ulp::amp::ScalerState;
using ulp::amp::StepResult;

const char* const kDialects[] = {"pytorch", "keras", "keras2", "apex", "deepspeed", "static:8"};

TEST(MakeScaler, EveryDialectHasItsPeersDefaults) {
  const auto expect = [](const char* spec, ScalerState state) {
    EXPECT_EQ(make_scaler(spec).state_dict(), state) << spec;
  };
  expect("pytorch", GradScaler().state_dict());
  expect("keras", {{"scale", 32768}, {"dynamic_growth_steps", 2000}, {"step_counter", 0}});
  expect("keras2", {{"scale", 32768}, {"dynamic_growth_steps", 2000}, {"good_steps", 0}});
  expect("apex", {{"scale", 65536},
                  {"scale_window", 2000},
                  {"max_loss_scale", 16777216},
                  {"min_loss_scale", 0},
                  {"unskipped", 0}});
  expect("deepspeed", {{"scale", 65536},
                       {"scale_window", 1000},
                       {"min_scale", 1},
                       {"delayed_shift", 2},
                       {"consecutive_hysteresis", 0},
                       {"raise_error_at_min_scale", 1},
                       {"grow_one_later", 0},
                       {"cur_iter", 0},
                       {"last_overflow_iter", -1},
                       {"cur_hysteresis", 2}});
  expect("static:8", {{"scale", 8}, {"_static", 1}});
  expect("static:0.5", {{"scale", 0.5}, {"_static", 1}});
  EXPECT_STREQ(make_scaler("keras3").dialect(), "keras");
  EXPECT_FALSE(make_scaler("none").is_enabled());
}

TEST(MakeScaler, OverridesReachEveryDynamicDialect) {
  for (const char* spec : {"pytorch", "keras", "keras3", "keras2", "apex", "deepspeed"}) {
    GradScaler scaler = make_scaler(spec, {.init_scale = 64, .growth_interval = 1});
    auto weight = torch::ones({1}).requires_grad_();
    torch::optim::SGD optimizer({weight}, 0.1);
    scaler.scale(weight.sum()).backward();
    EXPECT_EQ(scaler.step(optimizer), StepResult::stepped);
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 128) << spec;
    EXPECT_ERROR(make_scaler(spec, {.init_scale = -1}), "expected a scale > 0");
    EXPECT_ERROR(make_scaler(spec, {.growth_interval = 0}), ">= 1, got 0");
    EXPECT_ERROR(make_scaler(spec, {.growth_interval = -5}), ">= 1, got -5");
  }
  EXPECT_FALSE(make_scaler("none", {.init_scale = -1}).is_enabled());
  EXPECT_ERROR(make_scaler("static:8", {.init_scale = 2}), "expected no init_scale");
  EXPECT_ERROR(make_scaler("static:8", {.growth_interval = 2}), "no growth_interval beside 'static:8'");
}

TEST(MakeScaler, AnUnknownSpecListsTheKnownOnes) {
  for (const char* spec : {"", "Pytorch", "static", "static:", "static:x", "static:8x", "keras4", "none "}) {
    EXPECT_ERROR(
        make_scaler(spec),
        "[amp.make_scaler] expected one of pytorch, keras, keras3, keras2, apex, deepspeed, static:S "
        "with a scale S (static:8), none; got '" +
            std::string(spec) + "'");
  }
  for (const char* spec : {"static:0", "static:-8", "static:inf", "static:nan"}) {
    EXPECT_ERROR(make_scaler(spec), "expected a scale > 0");
  }
}

TEST(ScalerSpec, IsItsText) {
  using ulp::amp::ScalerKind;
  using ulp::amp::ScalerSpec;
  for (const char* text : kDialects) EXPECT_EQ(ScalerSpec::from_text(text).value().text(), text);
  EXPECT_EQ(ScalerSpec::from_text("none"), ScalerSpec(ScalerKind::none));
  EXPECT_EQ(ScalerSpec::from_text("keras3"), ScalerSpec(ScalerKind::keras));
  EXPECT_EQ(ScalerSpec::from_text("static:8.0"), ScalerSpec::fixed(8));
  EXPECT_EQ(ScalerSpec::fixed(0.1).text(), "static:0.1");
  EXPECT_FALSE(ScalerSpec::from_text("static:S"));
  for (const auto& word : ulp::EnumNames<ScalerKind>::list)
    EXPECT_NE(std::string(ScalerSpec::kExpected).find(word.text), std::string::npos) << word.text;
  EXPECT_EQ(make_scaler(ScalerSpec::fixed(0.5)).get_scale(), 0.5);
  EXPECT_STREQ(make_scaler(ScalerKind::apex).dialect(), "apex");
}

TEST(ScaleDialects, AStateOfAnotherDialectIsRefusedByName) {
  for (const char* from : kDialects) {
    for (const char* to : kDialects) {
      const ScalerState state = make_scaler(from).state_dict();
      GradScaler scaler = make_scaler(to);
      const ScalerState before = scaler.state_dict();
      if (from == to) {
        scaler.load_state_dict(state);
      } else {
        const std::string name = std::string(from).substr(0, std::string(from).find(':'));
        EXPECT_ERROR(scaler.load_state_dict(state), "got one of another dialect, '" + name + "'");
      }
      EXPECT_EQ(scaler.state_dict(), before);
    }
  }
}

TEST(ScaleDialects, DamagedStatesAreErrorsAndChangeNothing) {
  const auto refused = [](const char* spec, const char* name, double value, const char* part) {
    GradScaler scaler = make_scaler(spec);
    const ScalerState before = scaler.state_dict();
    ScalerState damaged = before;
    ASSERT_EQ(damaged.count(name), 1u) << spec << ' ' << name;
    damaged[name] = value;
    EXPECT_ERROR(scaler.load_state_dict(damaged), part);
    damaged.erase(name);
    EXPECT_NE(ulp::test::error_of([&] { scaler.load_state_dict(damaged); }), "") << spec << ' ' << name;
    EXPECT_EQ(scaler.state_dict(), before);
  };
  const double nan = std::nan("");
  for (const char* spec : kDialects) refused(spec, "scale", -1, "expected a scale > 0");
  refused("static:8", "scale", 0, "expected a scale > 0");  // the others shrink to it
  refused("keras", "dynamic_growth_steps", 0, "dynamic_growth_steps >= 1");
  refused("keras", "step_counter", -1, "step_counter >= 0");
  refused("keras2", "dynamic_growth_steps", -2000, "dynamic_growth_steps >= 1");
  refused("keras2", "good_steps", 0.5, "whole number below 2^31 for good_steps");
  refused("apex", "scale_window", nan, "whole number");
  refused("apex", "max_loss_scale", nan, "finite max_loss_scale > 0");
  refused("apex", "min_loss_scale", 1e30, "min_loss_scale between 0 and 1.67772e+07");
  refused("apex", "unskipped", -1, "unskipped >= 0");
  refused("deepspeed", "scale_window", 0, "scale_window >= 1");
  refused("deepspeed", "min_scale", 0, "finite min_scale > 0");
  refused("deepspeed", "delayed_shift", 0, "delayed_shift >= 1");
  refused("deepspeed", "consecutive_hysteresis", 2, "expected 0 or 1");
  refused("deepspeed", "cur_iter", -1, "cur_iter >= 0");
  refused("deepspeed", "last_overflow_iter", 1, "last_overflow_iter from -1 to below cur_iter");
  refused("deepspeed", "cur_hysteresis", 3, "cur_hysteresis from 1 to 2");
}

TEST(ScaleDialects, KerasStaysAtTheLastFiniteScale) {
  GradScaler scaler = make_scaler("keras", {.init_scale = 0x1p127, .growth_interval = 1});
  auto weight = torch::zeros({1}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.1);
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    scaler.scale((weight * 0).sum()).backward();
    EXPECT_EQ(scaler.step(optimizer), StepResult::stepped);
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 0x1p127);
  }
}

TEST(ScaleDialects, BelowOneTheVerdictDependsOnWhichGradientsAreTested) {
  const auto verdict = [](const char* spec) {
    GradScaler scaler = make_scaler(spec);
    scaler.scale(torch::ones({}));
    scaler.update(0.5);
    auto weight = torch::zeros({1}).requires_grad_();
    torch::optim::SGD optimizer({weight}, 0.1);
    scaler.scale(torch::ones({}));
    weight.mutable_grad() = torch::full({1}, 3e38f);
    const StepResult result = scaler.step(optimizer);
    EXPECT_TRUE(std::isinf(weight.grad().item<float>())) << spec;
    return result;
  };
  for (const char* spec : {"pytorch", "keras", "apex", "deepspeed", "static:0.5"})
    EXPECT_EQ(verdict(spec), StepResult::stepped) << spec;
  EXPECT_EQ(verdict("keras2"), StepResult::skipped_nonfinite);
}

TEST(Closures, AreRefusedUnlessTheScalerIsDisabled) {
  auto weight = torch::ones({1}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  int calls = 0;
  const auto closure = [&] {
    ++calls;
    optimizer.zero_grad();
    auto loss = weight.sum();
    loss.backward();
    return loss;
  };
  for (const char* spec : kDialects) {
    GradScaler scaler = make_scaler(spec);
    scaler.scale(weight.sum()).backward();
    EXPECT_ERROR(scaler.step(optimizer, closure),
                 "[amp.GradScaler.step] expected no closure while scaling is enabled, got one");
    EXPECT_EQ(scaler.step(optimizer), StepResult::stepped) << "the refused call has not moved the stage";
  }
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(make_scaler("none").step(optimizer, closure), StepResult::stepped);
  EXPECT_EQ(calls, 1);
}

TEST(Closures, AnOptimizerThatNeedsOneIsRefusedBeforeAnythingChanges) {
  auto weight = torch::ones({1}).requires_grad_();
  torch::optim::LBFGS optimizer({weight});
  GradScaler scaler({.init_scale = 8});
  scaler.scale(weight.sum()).backward();
  EXPECT_ERROR(scaler.step(optimizer), "expected an optimizer that steps without a closure, got LBFGS");
  EXPECT_EQ(weight.grad().item<float>(), 8);
}

}  // namespace
