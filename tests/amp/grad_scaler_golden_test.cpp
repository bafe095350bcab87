// Replays tests/golden/grad_scaler.json (made by make_grad_scaler.py with Python's torch.amp.GradScaler): the
// same scale, growth tracker and verdicts at every step, and the same weights, bit for bit, at the end.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "ulp/amp/grad_scaler.h"

namespace {

using ulp::amp::GradScaler;
using ulp::amp::StepResult;

const nlohmann::json& golden() {
  static const nlohmann::json data =
      nlohmann::json::parse(std::ifstream(ULP_SOURCE_DIR "/tests/golden/grad_scaler.json"));
  return data;
}

torch::Tensor gradient(char letter) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  static const std::map<char, double> special{
      {'B', 1e34}, {'i', kInf}, {'j', -kInf}, {'n', std::numeric_limits<double>::quiet_NaN()}, {'z', 0.0}};
  if (const auto found = special.find(letter); found != special.end()) {
    return torch::tensor({0.5, found->second}, torch::kFloat);
  }
  const double value = (letter - 'a' + 1) / 7.0;
  return torch::tensor({value, -0.25 * value}, torch::kFloat);
}

struct Trained {
  std::string letters, stepped;
  torch::Tensor weight = torch::tensor({1.0, -1.0}, torch::kFloat).requires_grad_();
  std::optional<torch::optim::SGD> optimizer;
};

class Replay {
 public:
  explicit Replay(const nlohmann::json& scenario)
      : scenario_(scenario), scaler_(options(scenario["options"])) {
    for (size_t i = 0; i < scenario["optimizers"].size(); ++i) {
      Trained& trained = trained_.emplace_back();
      trained.letters = scenario["optimizers"][i];
      trained.stepped = scenario["stepped"][i];
      trained.optimizer.emplace(std::vector<torch::Tensor>{trained.weight},
                                torch::optim::SGDOptions(1e-3).momentum(scenario["momentum"].get<double>()));
    }
  }

  void run() {
    double expected_scale = 0;
    size_t change = 0;
    const auto& changes = scenario_["scale_changes"];
    for (int step = 0; step < scenario_["steps"].get<int>(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      backward(step);
      for (Trained& trained : trained_) step_one(trained, step);
      update(step);
      if (change < changes.size() && changes[change][0] == step) expected_scale = changes[change++][1];
      ASSERT_EQ(scaler_.get_scale(), expected_scale);
      ASSERT_EQ(scaler_.growth_tracker(), scenario_["trackers"][step].get<int>());
      for (int at : scenario_["restore"]) {
        if (at == step) restore();
      }
    }
    EXPECT_EQ(change, changes.size());
    for (size_t i = 0; i < trained_.size(); ++i) compare_weights(trained_[i].weight, scenario_["weights"][i]);
  }

 private:
  static ulp::amp::GradScalerOptions options(const nlohmann::json& values) {
    ulp::amp::GradScalerOptions options;
    options.init_scale = values.value("init_scale", options.init_scale);
    options.growth_factor = values.value("growth_factor", options.growth_factor);
    options.backoff_factor = values.value("backoff_factor", options.backoff_factor);
    options.growth_interval = values.value("growth_interval", options.growth_interval);
    return options;
  }

  void backward(int step) {
    const int batches = scenario_["micro_batches"];
    for (Trained& trained : trained_) trained.optimizer->zero_grad();
    for (int batch = 0; batch < batches; ++batch) {
      auto loss = torch::zeros({});
      for (Trained& trained : trained_) {
        loss =
            loss +
            (trained.weight * gradient(trained.letters[static_cast<size_t>(step * batches + batch)])).sum();
      }
      scaler_.scale(loss).backward();
    }
  }

  void step_one(Trained& trained, int step) {
    if (const double clip = scenario_["clip"]; clip > 0) {
      scaler_.unscale_(*trained.optimizer);
      torch::nn::utils::clip_grad_norm_(trained.weight, clip);
    }
    const bool stepped = trained.stepped[static_cast<size_t>(step)] == '1';
    const StepResult expected = stepped ? StepResult::stepped : StepResult::skipped_nonfinite;
    const auto before = trained.weight.detach().clone();
    ASSERT_EQ(scaler_.step(*trained.optimizer), expected);
    if (!stepped) {
      ASSERT_TRUE(torch::allclose(before, trained.weight.detach(), 0, 0, /*equal_nan=*/true));
    }
  }

  void update(int step) {
    for (const auto& pair : scenario_["new_scale"]) {
      if (pair[0] == step) return scaler_.update(pair[1].get<double>());
    }
    scaler_.update();
  }

  void restore() {
    const auto state = scaler_.state_dict();
    scaler_ = GradScaler({.init_scale = 3.0});
    scaler_.load_state_dict(state);
  }

  static void compare_weights(const torch::Tensor& weight, const nlohmann::json& expected) {
    for (int i = 0; i < 2; ++i) {
      const double want = std::strtod(expected[static_cast<size_t>(i)].get<std::string>().c_str(), nullptr);
      const auto got = static_cast<double>(weight[i].item<float>());
      EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << got << " instead of " << want;
    }
  }

  const nlohmann::json& scenario_;
  GradScaler scaler_;
  std::vector<Trained> trained_;
};

class GradScalerGolden : public ::testing::TestWithParam<int> {};

TEST_P(GradScalerGolden, SameScaleVerdictsAndWeights) {
  const auto& scenario = golden()["scenarios"][static_cast<size_t>(GetParam())];
  SCOPED_TRACE(scenario["name"].get<std::string>());
  Replay(scenario).run();
}

INSTANTIATE_TEST_SUITE_P(Scenarios, GradScalerGolden,
                         ::testing::Range(0, static_cast<int>(golden()["scenarios"].size())));

}  // namespace
