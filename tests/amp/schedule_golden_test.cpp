// Replays tests/golden/schedules.json (made by make_schedules.py): the rates of every step in both parameter
// groups, and the momenta, as torch's schedulers and Hugging Face's formulas give them.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "letters.h"
#include "ulp/amp/optimizer/schedule.h"

namespace {

using nlohmann::json;
using namespace ulp::amp;

const json& schedule_golden() {
  static const json data = letters::golden("schedules.json");
  return data;
}

template <typename Rule>
ScheduleRule filled(const json& values) {
  Rule rule;
  size_t used = 0;
  Rule::fields(rule, [&](const char* name, auto& field) {
    if (!values.contains(name)) return;
    if constexpr (std::is_enum_v<std::decay_t<decltype(field)>>) {
      field = static_cast<std::decay_t<decltype(field)>>(values[name].get<int>());
    } else {
      values[name].get_to(field);
    }
    ++used;
  });
  EXPECT_EQ(used, values.size());
  return rule;
}

ScheduleRule rule_of(const json& run) {
  const std::string name = run["rule"];
  if (name == ConstantRate::kName) return filled<ConstantRate>(run["fields"]);
  if (name == CosineRate::kName) return filled<CosineRate>(run["fields"]);
  if (name == PolynomialRate::kName) return filled<PolynomialRate>(run["fields"]);
  return filled<OneCycleRate>(run["fields"]);
}

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const std::string& kind) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (double rate : schedule_golden()["base"].get<std::vector<double>>()) {
    std::unique_ptr<torch::optim::OptimizerOptions> options;
    if (kind == "adamw") {
      options = std::make_unique<torch::optim::AdamWOptions>(rate);
    } else {
      options = std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(rate).momentum(0.9));
    }
    groups.emplace_back(std::vector<torch::Tensor>{torch::zeros({1}).requires_grad_()}, std::move(options));
  }
  if (kind == "adamw") return std::make_unique<torch::optim::AdamW>(groups);
  return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.5));
}

double momentum_of(torch::optim::OptimizerOptions& options) {
  const auto* adamw = dynamic_cast<torch::optim::AdamWOptions*>(&options);
  return adamw ? std::get<0>(adamw->betas()) : dynamic_cast<torch::optim::SGDOptions&>(options).momentum();
}

class ScheduleGolden : public ::testing::TestWithParam<int> {};

// torch's schedulers get from rate to rate by a product or difference each step, so roundings add up.
TEST_P(ScheduleGolden, SameRatesAndMomenta) {
  const json& run = schedule_golden()["runs"][static_cast<size_t>(GetParam())];
  SCOPED_TRACE(run["source"].get<std::string>());
  const auto optimizer = optimizer_of(run["optimizer"]);
  LearningRateSchedule schedule(*optimizer, rule_of(run));
  const json& rates = run["rates"];
  const json& momenta = run["momenta"];
  for (size_t step = 0; step < rates.size(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const double bound = static_cast<double>(8 * (step + 1)) * 0x1p-53;
    for (size_t group = 0; group < 2; ++group) {
      auto& options = optimizer->param_groups()[group].options();
      const double base = schedule_golden()["base"][group];
      ASSERT_NEAR(options.get_lr(), rates[step][group].get<double>(), base * bound);
    }
    if (!momenta.empty()) {
      ASSERT_NEAR(momentum_of(optimizer->param_groups()[1].options()), momenta[step].get<double>(), bound);
    }
    schedule.advance(StepResult::stepped);
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, ScheduleGolden,
                         ::testing::Range(0, static_cast<int>(schedule_golden()["runs"].size())));

}  // namespace
