// Replays tests/golden/loss_scales.json (made by make_loss_scales.py with Keras 2, Keras 3, Apex and
// DeepSpeed themselves): the same scale and verdict at every step, the same counter where it was noted, and
// the error where the peer gives up. A step that a peer takes at a scale of 0 is skipped.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "letters.h"
#include "ulp/amp/scaling/make_scaler.h"

namespace {

using nlohmann::json;
using ulp::amp::GradScaler;
using ulp::amp::ScalerState;
using ulp::amp::StepResult;

const json& scenarios() {
  static const json data = letters::golden("loss_scales.json")["scenarios"];
  return data;
}

double number(const json& value) {
  return value.is_boolean() ? static_cast<double>(value.get<bool>()) : value.get<double>();
}

/// A fresh scaler of the scenario's dialect with its options, by way of the state.
GradScaler scaler_of(const json& scenario) {
  GradScaler scaler = ulp::amp::make_scaler(scenario["dialect"].get<std::string>());
  ScalerState state = scaler.state_dict();
  state["scale"] = scenario["init_scale"];
  for (const auto& [name, value] : scenario["options"].items()) {
    EXPECT_EQ(state.count(name), 1u) << name;
    state[name] = number(value);
  }
  if (state.count("delayed_shift") != 0) state["cur_hysteresis"] = state["delayed_shift"];
  if (scenario["peer"] == "deepspeed 0.19.8") state["grow_one_later"] = 1;
  scaler.load_state_dict(state);
  return scaler;
}

class DialectRun {
 public:
  explicit DialectRun(const json& scenario) : scenario_(scenario), scaler_(scaler_of(scenario)) {}

  void run() {
    const std::string letters = scenario_["letters"], stepped = scenario_["stepped"];
    const int error_at = scenario_["error_at"];
    ASSERT_EQ(stepped.size(), error_at < 0 ? letters.size() : static_cast<size_t>(error_at));
    for (size_t i = 0; i < stepped.size(); ++i) {
      SCOPED_TRACE("step " + std::to_string(i));
      const bool underflow = std::isinf(static_cast<float>(1 / scaler_.get_scale()));
      const StepResult taken = underflow ? StepResult::skipped_underflow : StepResult::stepped;
      ASSERT_EQ(step(letters[i]), stepped[i] == '1' ? taken : StepResult::skipped_nonfinite);
      scaler_.update();
      compare(static_cast<int>(i));
      if (::testing::Test::HasFatalFailure()) return;
      if (i % 701 == 0) restore();
    }
    EXPECT_EQ(scale_at_, scenario_["scales"].size());
    if (error_at >= 0) {
      ASSERT_EQ(step(letters[static_cast<size_t>(error_at)]), StepResult::skipped_nonfinite);
      EXPECT_ERROR(scaler_.update(), "expected finite gradients at the smallest loss scale, 1,");
      EXPECT_EQ(scaler_.get_scale(), 1);
    }
  }

 private:
  StepResult step(char letter) {
    weight_.mutable_grad() = scaler_.scale(letter == 'S' ? torch::ones({2}) : letters::gradient(letter));
    if (letter == 'S') weight_.mutable_grad() = torch::tensor({0.5f, 3e38f});
    return scaler_.step(optimizer_);
  }

  void compare(int step) {
    const json& scales = scenario_["scales"];
    if (scale_at_ < scales.size() && scales[scale_at_][0] == step) expected_scale_ = scales[scale_at_++][1];
    ASSERT_EQ(scaler_.get_scale(), expected_scale_);
    const json& counters = scenario_["counters"];
    if (counter_at_ < counters.size() && counters[counter_at_][0] == step) {
      ASSERT_EQ(scaler_.growth_tracker(), counters[counter_at_++][1].get<int64_t>());
    }
  }

  void restore() {
    const ScalerState state = scaler_.state_dict();
    scaler_ = ulp::amp::make_scaler(scenario_["dialect"].get<std::string>());
    scaler_.load_state_dict(state);
    ASSERT_EQ(scaler_.state_dict(), state);
  }

  const json& scenario_;
  GradScaler scaler_;
  torch::Tensor weight_ = torch::tensor({1.0f, -1.0f}).requires_grad_();
  torch::optim::SGD optimizer_{{weight_}, torch::optim::SGDOptions(1e-3)};
  double expected_scale_ = scenario_["init_scale"];
  size_t scale_at_ = 1, counter_at_ = 0;
};

class LossScaleGolden : public ::testing::TestWithParam<int> {};

TEST_P(LossScaleGolden, SameScalesVerdictsAndErrors) {
  const json& scenario = scenarios()[static_cast<size_t>(GetParam())];
  SCOPED_TRACE(scenario["peer"].get<std::string>() + ": " + scenario["name"].get<std::string>());
  DialectRun(scenario).run();
}

INSTANTIATE_TEST_SUITE_P(Scenarios, LossScaleGolden,
                         ::testing::Range(0, static_cast<int>(scenarios().size())));

TEST(LossScaleGoldenData, CoversEveryDialectAndBothDeepSpeeds) {
  std::map<std::string, int> count;
  for (const json& scenario : scenarios()) ++count[scenario["peer"].get<std::string>()];
  for (const char* peer :
       {"keras 3.15.1", "tf_keras 2.21.0", "apex b82c6bd", "deepspeed 0.16.9", "deepspeed 0.19.8"}) {
    EXPECT_GE(count[peer], 5) << peer;
  }
}

}  // namespace
