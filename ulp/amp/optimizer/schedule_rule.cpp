#include "ulp/amp/optimizer/schedule_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <utility>

#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

constexpr const char* kScheduleRuleWhere = "amp.ScheduleRule";

void between(const char* field, double value, double low, double high) {
  if (!(value >= low && value <= high))
    fail(kScheduleRuleWhere, "expected ", field, " between ", low, " and ", high, ", got ", value);
}

void positive(const char* field, double value) {
  if (!(value > 0) || std::isinf(value))
    fail(kScheduleRuleWhere, "expected a finite ", field, " > 0, got ", value);
}

void check_warmup(const Warmup& warmup) {
  if (warmup.steps < 0) fail(kScheduleRuleWhere, "expected warmup.steps >= 0, got ", warmup.steps);
  between("warmup.from", warmup.from, 0, 1);
}

void check_total(int64_t total_steps, const Warmup& warmup) {
  check_warmup(warmup);
  if (total_steps <= warmup.steps) {
    fail(kScheduleRuleWhere, "expected total_steps above the ", warmup.steps, " of the warm-up, got ",
         total_steps);
  }
}

double rising(const Warmup& warmup, int64_t step) {
  const double share = static_cast<double>(step) / static_cast<double>(warmup.steps);
  return warmup.from + (1 - warmup.from) * share;
}

/// How far the steps after the warm-up are done, from 0 to 1.
double progress(const Warmup& warmup, int64_t step, int64_t total_steps) {
  const int64_t after = std::min(step, total_steps) - warmup.steps;
  return static_cast<double>(after) / static_cast<double>(total_steps - warmup.steps);
}

double cosine_wave(double turns) {
  return (1 + std::cos(std::numbers::pi * turns)) / 2;
}

}  // namespace

void ConstantRate::validate() const {
  check_warmup(warmup);
}

double ConstantRate::factor(int64_t step) const {
  return step < warmup.steps ? rising(warmup, step) : 1.0;
}

void CosineRate::validate() const {
  check_total(total_steps, warmup);
  positive("cycles", cycles);
  between("end_factor", end_factor, 0, 1);
}

double CosineRate::factor(int64_t step) const {
  if (step < warmup.steps) return rising(warmup, step);
  return end_factor + (1 - end_factor) * cosine_wave(2 * cycles * progress(warmup, step, total_steps));
}

void PolynomialRate::validate() const {
  check_total(total_steps, warmup);
  positive("power", power);
  between("end_factor", end_factor, 0, 1);
}

double PolynomialRate::factor(int64_t step) const {
  if (step < warmup.steps) return rising(warmup, step);
  return end_factor + (1 - end_factor) * std::pow(1 - progress(warmup, step, total_steps), power);
}

void OneCycleRate::validate() const {
  if (total_steps < 2) fail(kScheduleRuleWhere, "expected total_steps >= 2, got ", total_steps);
  between("pct_start", pct_start, 0, three_phase ? 0.5 : 1);
  const double largest = std::numeric_limits<double>::max();
  between("div_factor", div_factor, 1, largest);
  between("final_div_factor", final_div_factor, 1, largest);
  between("base_momentum", base_momentum, 0, max_momentum);
  if (!(max_momentum < 1)) fail(kScheduleRuleWhere, "expected max_momentum < 1, got ", max_momentum);
}

/// The curve through the corners: start, after the first phase, after the second (three_phase only), end.
double OneCycleRate::along(int64_t step, const double (&corners)[4]) const {
  const auto total = static_cast<double>(total_steps);
  const double ends[4] = {0, pct_start * total - 1, 2 * pct_start * total - 2, total - 1};
  const double at = std::min(static_cast<double>(step), total - 1);
  int from = 0;
  int to = 1;
  while (at > ends[to] && to < 3) {
    from = to;
    to += three_phase ? 1 : 2;
  }
  const double length = ends[to] - ends[from];
  const double share = length > 0 ? (at - ends[from]) / length : 1.0;
  const double left = anneal == Anneal::cosine ? cosine_wave(share) : 1 - share;
  return corners[to] + (corners[from] - corners[to]) * left;
}

double OneCycleRate::factor(int64_t step) const {
  const double initial = 1 / div_factor;
  return along(step, {initial, 1.0, initial, initial / final_div_factor});
}

double OneCycleRate::momentum(int64_t step) const {
  return along(step, {max_momentum, base_momentum, max_momentum, max_momentum});
}

void TriangleRate::validate() const {
  if (total_steps < 1) fail(kScheduleRuleWhere, "expected total_steps >= 1, got ", total_steps);
  if (!(warmup >= 0 && warmup < 1)) fail(kScheduleRuleWhere, "expected warmup in [0, 1), got ", warmup);
}

double TriangleRate::factor(int64_t step) const {
  const double at = static_cast<double>(step) / static_cast<double>(total_steps);
  if (at >= 1.0) return 0.0;
  return at < warmup ? at / warmup : (1.0 - at) / (1.0 - warmup);
}

double rate_factor(const ScheduleRule& rule, int64_t step) {
  if (step < 0) fail("amp.rate_factor", "expected a step >= 0, got ", step);
  return std::visit([&](const auto& chosen) { return chosen.factor(step); }, rule);
}

namespace {

ScheduleRule rule_of(Schedule schedule, int64_t total_steps, double warmup) {
  const Warmup rise{.steps = static_cast<int64_t>(warmup * static_cast<double>(total_steps))};
  switch (schedule) {
    case Schedule::constant:
      return ConstantRate{};
    case Schedule::constant_with_warmup:
      return ConstantRate{.warmup = rise};
    case Schedule::cosine:
      return CosineRate{.total_steps = total_steps, .warmup = rise};
    case Schedule::polynomial:
      return PolynomialRate{.total_steps = total_steps, .warmup = rise};
    case Schedule::one_cycle:
      return OneCycleRate{.total_steps = total_steps, .pct_start = warmup};
    case Schedule::triangle:
      break;
  }
  return TriangleRate{.total_steps = total_steps, .warmup = warmup};
}

}  // namespace

ScheduleRule make_schedule_rule(Schedule schedule, int64_t total_steps, double warmup) {
  constexpr const char* kMake = "amp.make_schedule_rule";
  if (total_steps < 1) fail(kMake, "expected total_steps >= 1, got ", total_steps);
  if (!(warmup >= 0 && warmup < 1)) fail(kMake, "expected warmup in [0, 1), got ", warmup);
  const ScheduleRule rule = rule_of(schedule, total_steps, warmup);
  std::visit([](const auto& chosen) { chosen.validate(); }, rule);
  return rule;
}

}  // namespace ulp::amp
