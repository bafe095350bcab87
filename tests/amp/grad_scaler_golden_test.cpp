// Replays tests/golden/grad_scaler.json (made by make_grad_scaler.py with Python's torch.amp.GradScaler): the
// same scale, growth tracker and verdicts at every step. Weights are those of the same optimizer with
// gradients that plain loops scaled and unscaled, bit for bit; they are the recorded ones but for the
// rounding of updates, which LibTorch fuses with their products where the processor can. Where PyTorch
// multiplies by an infinite 1 / scale and steps, ulp does not, and keeps the weights.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
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

/// A weight and its optimizer.
struct Weight {
  torch::Tensor weight;
  std::unique_ptr<torch::optim::Optimizer> optimizer;

  void make(const std::string& kind, double momentum) {
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
};

struct Trained : Weight {
  std::string letters, stepped, kind;
  Weight plain;       // never sees the scaler
  bool kept = false;  // a step that made PyTorch's weights NaN was not taken

  torch::Tensor loss(char letter) const {
    auto used = weight;
    if (kind == "sparse")
      used = torch::embedding(weight, torch::tensor({1, 1}), -1, /*scale_grad_by_freq=*/false, true);
    return (used * letters::gradient(letter)).sum();
  }

  /// What micro-batches leave behind: gradients times the scale, their sum times `inverse`.
  torch::Tensor plain_gradient(const std::string& of_batches, float scale, float inverse) const {
    float sums[2] = {0, 0};
    const int times = kind == "sparse" ? 2 : 1;  // the rows that are looked up
    for (const char letter : of_batches) {
      const torch::Tensor gradient = letters::gradient(letter);
      for (int element = 0; element < 2; ++element) {
        const float scaled = gradient.const_data_ptr<float>()[element] * scale;
        for (int i = 0; i < times; ++i) sums[element] += scaled;
      }
    }
    const torch::Tensor unscaled = torch::tensor({sums[0] * inverse, sums[1] * inverse});
    if (kind != "sparse") return unscaled;
    return torch::sparse_coo_tensor(torch::tensor({{1}}), unscaled.unsqueeze(0), {3, 2}).coalesce();
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
      trained.make(trained.kind, scenario["momentum"]);
      trained.plain.make(trained.kind, scenario["momentum"]);
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
    if (expected == StepResult::stepped) plain_step(trained, step);
    const auto before = trained.weight.detach().clone();
    ASSERT_EQ(scaler_.step(*trained.optimizer), expected);
    if (expected != StepResult::stepped) {
      ASSERT_TRUE(torch::allclose(before, trained.weight.detach(), 0, 0, /*equal_nan=*/true));
    }
  }

  void plain_step(Trained& trained, int step) {
    const auto batches = scenario_["micro_batches"].get<size_t>();
    const double scale = scaler_.get_scale();
    trained.plain.weight.mutable_grad() =
        trained.plain_gradient(trained.letters.substr(static_cast<size_t>(step) * batches, batches),
                               static_cast<float>(scale), static_cast<float>(1 / scale));
    if (const double clip = scenario_["clip"]; clip > 0)
      torch::nn::utils::clip_grad_norm_(trained.plain.weight, clip);
    trained.plain.optimizer->step();
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

  void compare_weights(const Trained& trained, const nlohmann::json& recorded) const {
    const auto weight = trained.weight.detach().flatten(), plain = trained.plain.weight.detach().flatten();
    ASSERT_EQ(static_cast<size_t>(weight.numel()), recorded.size());
    for (int64_t i = 0; i < weight.numel(); ++i) {
      const float got = weight[i].item<float>();
      EXPECT_TRUE(got == plain[i].item<float>() || (std::isnan(got) && std::isnan(plain[i].item<float>())))
          << trained.kind << ": " << got << " instead of " << plain[i].item<float>();
      const double theirs = std::strtod(recorded[static_cast<size_t>(i)].get<std::string>().c_str(), nullptr);
      if (trained.kept) {
        EXPECT_TRUE(std::isfinite(got) && std::isnan(theirs)) << got << " instead of " << theirs;
        continue;
      }
      // A step rounds a product and a sum in each of the two arithmetics, of numbers that are no larger than
      // the last weight or the first: weights go one way.
      const double bound = 4 * 0x1p-24 * scenario_["steps"].get<double>() * std::max(1.0, std::fabs(theirs));
      EXPECT_TRUE(std::fabs(got - theirs) <= bound || got == theirs ||
                  (std::isnan(got) && std::isnan(theirs)))
          << trained.kind << ": " << got << " instead of " << theirs;
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
