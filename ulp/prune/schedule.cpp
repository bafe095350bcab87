#include "ulp/prune/schedule.h"

#include "ulp/base/error.h"
#include "ulp/base/fields.h"

namespace ulp::prune {

namespace {

constexpr double kMostSteps = 1e12;  // rounds of them fit into a number of steps

}  // namespace

bool Schedule::due(int64_t step) const {
  switch (kind) {
    case ScheduleKind::one_shot:
      return step == begin;
    case ScheduleKind::iterative:
      return step >= begin && (step - begin) % frequency == 0 && (step - begin) / frequency < rounds;
    case ScheduleKind::cubic:
      return step >= begin && step <= end && (step - begin) % frequency == 0;
  }
  return false;
}

Amount Schedule::amount_at(int64_t step, const Amount& amount) const {
  if (kind != ScheduleKind::cubic) return amount;
  const double left =
      end == begin ? 0 : 1 - static_cast<double>(step - begin) / static_cast<double>(end - begin);
  return Amount::share(amount.fraction + (initial - amount.fraction) * left * left * left, AmountOf::all);
}

int64_t Schedule::last() const {
  switch (kind) {
    case ScheduleKind::one_shot:
      return begin;
    case ScheduleKind::iterative:
      return begin + (rounds - 1) * frequency;
    case ScheduleKind::cubic:
      return begin + (end - begin) / frequency * frequency;
  }
  return begin;
}

void Schedule::visit_fields(FieldVisitor& visit) {
  visit({.name = "kind", .help = "How the amount is reached while training", .flag = "prune-schedule"}, kind);
  visit({"begin", "The first step at which weights are pruned", 0, kMostSteps}, begin);
  visit({"end", "cubic: the last one", 0, kMostSteps}, end);
  visit({"frequency", "Steps between two masks", 1, kMostSteps}, frequency);
  visit({"rounds", "iterative: how often", 1, 1e6}, rounds);
  visit({"initial", "cubic: share that is pruned at the first step", 0, 1}, initial);
}

void Schedule::validate(const Amount& amount) const {
  constexpr const char* kWhere = "prune.Schedule";
  check_limits(kWhere, *this);
  if (kind == ScheduleKind::iterative && rounds > 1 && amount.of == AmountOf::all)
    fail(kWhere, "expected an amount of what remains for iterative, got one of all, which one round reaches");
  if (kind != ScheduleKind::cubic) return;
  if (end < begin) fail(kWhere, "expected end >= begin, got ", end, " and ", begin);
  if (amount.count || amount.of != AmountOf::all)
    fail(kWhere, "expected an amount that is a fraction of all for cubic, got ",
         amount.count ? "a count" : "one of what remains");
  if (initial > amount.fraction)
    fail(kWhere, "expected initial of at most the amount, ", amount.fraction, ", for cubic, got ", initial);
  if ((end - begin) % frequency != 0)
    fail(kWhere, "expected end - begin in a multiple of frequency, so that the amount is reached, got ",
         end - begin, " and ", frequency);
}

}  // namespace ulp::prune
