// A learning-rate schedule that follows what the optimizer really did: skipped steps do not advance it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ulp/amp/optimizer/schedule_rule.h"
#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// The numbers of a saved schedule by name.
using ScheduleState = std::map<std::string, double>;

/// Sets the learning rate of every parameter group to the group's own base rate times the rule's factor.
///
///   LearningRateSchedule schedule(optimizer, CosineRate{.total_steps = 1000, .warmup = {.steps = 50}});
///   ...
///   schedule.advance(scaler.step(optimizer));
///
/// The optimizer must outlive the schedule.
class ULP_API LearningRateSchedule {
 public:
  /// Takes the rates that the groups have now as their base rates (the highest ones), and sets those of step
  /// 0. A rule that is out of range is an error; so is one that cycles the momentum of an optimizer other
  /// than SGD, RMSprop, Adam and AdamW.
  LearningRateSchedule(torch::optim::Optimizer& optimizer, const ScheduleRule& rule);

  /// On to the rates of the next step if the optimizer stepped; nothing after a skipped step or one without
  /// gradients. An error when the optimizer has got another number of parameter groups.
  void advance(StepResult result);

  /// Steps taken, which is the index of the next one.
  int64_t step() const { return step_; }
  /// The factor of the base rates for the next step.
  double factor() const { return rate_factor(rule_, step_); }

  /// The step, the base rates and the rule's own fields.
  ScheduleState state_dict() const;
  /// Continues where the saved schedule was, with its base rates, and sets the rates. A state of another rule
  /// or number of groups, an incomplete one and a damaged one are errors that change nothing.
  void load_state_dict(const ScheduleState& state);

 private:
  void apply() const;

  torch::optim::Optimizer* optimizer_;
  ScheduleRule rule_;
  std::vector<double> base_rates_;
  int64_t step_ = 0;
};

}  // namespace ulp::amp
