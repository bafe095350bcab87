// Replays tests/golden/grad_scaler.json (made by make_grad_scaler.py with Python's torch.amp.GradScaler): the
// same scale, growth tracker and verdicts at every step, and the same weights, bit for bit, at the end. Where
// PyTorch multiplies by an infinite 1 / scale and steps, ulp does not, and keeps the weights.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "letters.h"
#include "ulp/amp/scaling/grad_scaler.h"

namespace {

using ulp::amp::GradScaler;
using ulp::amp::StepResult;

const nlohmann::json& scaler_golden() {
  static const nlohmann::json data = letters::golden("grad_scaler.json");
  return data;
}

struct Trained {
  std::string letters, stepped, kind;
  torch::Tensor weight;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  bool kept = false;  // a step that made PyTorch's weights NaN was not taken

  void make(double momentum) {
    const auto start = torch::tensor({1.0, -1.0}, torch::kFloat);
    weight = (kind == "sparse" ? start.repeat({3, 1}) : start).requires_grad_();
    const std::vector<torch::Tensor> parameters{weight};
    if (kind == "adam") {
      optimizer = std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(1e-3));
    } else if (kind == "adamw") {
      optimizer = std::make_unique<torch::optim::AdamW>(parameters,
                                                        torch::optim::AdamWOptions(1e-3).weight_decay(0.1));
    } else {
      optimizer = std::make_unique<torch::optim::SGD>(
          parameters, torch::optim::SGDOptions(1e-3).momentum(kind == "sparse" ? 0.0 : momentum));
    }
  }

  torch::Tensor loss(char letter) const {
    auto used = weight;
    if (kind == "sparse")
      used = torch::embedding(weight, torch::tensor({1, 1}), -1, /*scale_grad_by_freq=*/false, true);
    return (used * letters::gradient(letter)).sum();
  }
};

class ScalerRun {
 public:
  explicit ScalerRun(const nlohmann::json& scenario)
      : scenario_(scenario), scaler_(options(scenario["options"])) {
    for (size_t i = 0; i < scenario["optimizers"].size(); ++i) {
      Trained& trained = trained_.emplace_back();
      trained.letters = scenario["optimizers"][i];
      trained.stepped = scenario["stepped"][i];
      trained.kind = scenario["kinds"][i];
      trained.make(scenario["momentum"]);
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
    for (size_t i = 0; i < trained_.size(); ++i) compare_weights(trained_[i], scenario_["weights"][i]);
  }

 private:
  static ulp::amp::GradScalerOptions options(const nlohmann::json& values) {
    ulp::amp::GradScalerOptions options;
    options.init_scale = values.value("init_scale", options.init_scale);
    options.growth_factor = values.value("growth_factor", options.growth_factor);
    options.backoff_factor = values.value("backoff_factor", options.backoff_factor);
    options.growth_interval = values.value("growth_interval", options.growth_interval);
    options.enabled = values.value("enabled", true);
    return options;
  }

  void backward(int step) {
    const int batches = scenario_["micro_batches"];
    for (Trained& trained : trained_) trained.optimizer->zero_grad();
    for (int batch = 0; batch < batches; ++batch) {
      std::vector<torch::Tensor> losses;
      for (Trained& trained : trained_)
        losses.push_back(trained.loss(trained.letters[static_cast<size_t>(step * batches + batch)]));
      if (scenario_["separate_losses"]) {
        for (const auto& scaled : scaler_.scale(losses)) scaled.backward();
      } else {
        scaler_.scale(std::accumulate(losses.begin(), losses.end(), torch::zeros({}))).backward();
      }
    }
  }

  void step_one(Trained& trained, int step) {
    if (const double clip = scenario_["clip"]; clip > 0) {
      scaler_.unscale_(*trained.optimizer);
      torch::nn::utils::clip_grad_norm_(trained.weight, clip);
    }
    const bool stepped = trained.stepped[static_cast<size_t>(step)] == '1';
    const bool underflow = stepped && std::isinf(static_cast<float>(1 / scaler_.get_scale()));
    const StepResult expected = underflow ? StepResult::skipped_underflow
                                : stepped ? StepResult::stepped
                                          : StepResult::skipped_nonfinite;
    trained.kept = trained.kept || underflow;
    const auto before = trained.weight.detach().clone();
    ASSERT_EQ(scaler_.step(*trained.optimizer), expected);
    if (expected != StepResult::stepped) {
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

  // SGD gives the same bits. Python's Adam moves its averages by lerp_, LibTorch's C++ by mul_ and add_: each
  // step, at most about the rate, may differ by a few roundings. Python does not sum the two entries of a
  // sparse row before the step: two roundings of a weight below 2 where there is one here.
  double bound(const std::string& kind) const {
    const double steps = scenario_["steps"];
    if (kind == "sparse") return steps * 2 * 0x1p-24;
    return kind == "sgd" ? 0.0 : steps * 1e-3 * 8 * 0x1p-24;
  }

  void compare_weights(const Trained& trained, const nlohmann::json& expected) const {
    const auto weight = trained.weight.detach().flatten();
    ASSERT_EQ(static_cast<size_t>(weight.numel()), expected.size());
    for (int64_t i = 0; i < weight.numel(); ++i) {
      const double want = std::strtod(expected[static_cast<size_t>(i)].get<std::string>().c_str(), nullptr);
      const auto got = static_cast<double>(weight[i].item<float>());
      if (trained.kept) {
        EXPECT_TRUE(std::isfinite(got) && std::isnan(want)) << got << " instead of " << want;
        continue;
      }
      EXPECT_TRUE(std::fabs(got - want) <= bound(trained.kind) || got == want ||
                  (std::isnan(got) && std::isnan(want)))
          << trained.kind << ": " << got << " instead of " << want;
    }
  }

  const nlohmann::json& scenario_;
  GradScaler scaler_;
  std::vector<Trained> trained_;
};

class GradScalerGolden : public ::testing::TestWithParam<int> {};

TEST_P(GradScalerGolden, SameScaleVerdictsAndWeights) {
  const auto& scenario = scaler_golden()["scenarios"][static_cast<size_t>(GetParam())];
  SCOPED_TRACE(scenario["name"].get<std::string>());
  ScalerRun(scenario).run();
}

INSTANTIATE_TEST_SUITE_P(Scenarios, GradScalerGolden,
                         ::testing::Range(0, static_cast<int>(scaler_golden()["scenarios"].size())));

}  // namespace
