#include "ulp/amp/optimizer/schedule.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "ulp/amp/state_fields.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

constexpr const char* kStep = "step";

std::string base_rate_name(size_t group) {
  return "base_lr." + std::to_string(group);
}

template <typename Options>
bool set_plain_momentum(torch::optim::OptimizerOptions& options, double momentum) {
  auto* own = dynamic_cast<Options*>(&options);
  if (own != nullptr) own->momentum(momentum);
  return own != nullptr;
}

template <typename Options>
bool set_beta1(torch::optim::OptimizerOptions& options, double beta1) {
  auto* own = dynamic_cast<Options*>(&options);
  if (own != nullptr) own->betas({beta1, std::get<1>(own->betas())});
  return own != nullptr;
}

void set_momentum(torch::optim::OptimizerOptions& options, double momentum) {
  const bool known = set_plain_momentum<torch::optim::SGDOptions>(options, momentum) ||
                     set_plain_momentum<torch::optim::RMSpropOptions>(options, momentum) ||
                     set_beta1<torch::optim::AdamOptions>(options, momentum) ||
                     set_beta1<torch::optim::AdamWOptions>(options, momentum);
  if (!known) {
    fail("amp.LearningRateSchedule",
         "expected SGD, RMSprop, Adam or AdamW for a rule that cycles the momentum, got another optimizer");
  }
}

}  // namespace

LearningRateSchedule::LearningRateSchedule(torch::optim::Optimizer& optimizer, const ScheduleRule& rule)
    : optimizer_(&optimizer), rule_(rule) {
  std::visit([](const auto& chosen) { chosen.validate(); }, rule_);
  for (const auto& group : optimizer.param_groups()) base_rates_.push_back(group.options().get_lr());
  apply();
}

void LearningRateSchedule::apply() const {
  auto& groups = optimizer_->param_groups();
  if (groups.size() != base_rates_.size()) {
    fail("amp.LearningRateSchedule", "expected the ", base_rates_.size(),
         " parameter groups of construction, got ", groups.size());
  }
  const auto* cycle = std::get_if<OneCycleRate>(&rule_);
  for (size_t i = 0; i < groups.size(); ++i) {
    auto& options = groups[i].options();
    if (cycle != nullptr && cycle->cycle_momentum) set_momentum(options, cycle->momentum(step_));
    options.set_lr(base_rates_[i] * factor());
  }
}

void LearningRateSchedule::advance(StepResult result) {
  if (result != StepResult::stepped) return;
  ++step_;
  apply();
}

ScheduleState LearningRateSchedule::state_dict() const {
  return std::visit(
      [this](const auto& rule) {
        ScheduleState state = saved_fields(rule);
        state[std::string("_") + rule.kName] = 1;
        state[kStep] = static_cast<double>(step_);
        for (size_t i = 0; i < base_rates_.size(); ++i) state[base_rate_name(i)] = base_rates_[i];
        return state;
      },
      rule_);
}

void LearningRateSchedule::load_state_dict(const ScheduleState& state) {
  constexpr const char* kWhere = "amp.LearningRateSchedule.load_state_dict";
  std::vector<double> base_rates = base_rates_;
  double step = 0;
  const ScheduleState own = state_dict();
  for (const auto& [name, value] : own) {
    const auto found = state.find(name);
    if (found == state.end()) fail(kWhere, "expected an entry ", name, ", got none (of another schedule?)");
    if (name == kStep) {
      step = found->second;
    } else if (name.rfind("base_lr.", 0) == 0) {
      base_rates[std::stoul(name.substr(8))] = found->second;
    } else if (found->second != value) {
      fail(kWhere, "expected ", name, " = ", value, " as in this schedule, got ", found->second);
    }
  }
  if (state.size() != own.size())
    fail(kWhere, "expected ", own.size(), " entries, got ", state.size(), " (of another schedule?)");
  if (!(step >= 0 && step < 0x1p53) || step != std::trunc(step))
    fail(kWhere, "expected a whole number >= 0 for ", kStep, ", got ", step);
  for (double rate : base_rates) {
    if (!(rate >= 0 && rate <= std::numeric_limits<float>::max()))
      fail(kWhere, "expected finite base rates >= 0 in fp32, got ", rate);
  }
  base_rates_ = std::move(base_rates);
  step_ = static_cast<int64_t>(step);
  apply();
}

}  // namespace ulp::amp
