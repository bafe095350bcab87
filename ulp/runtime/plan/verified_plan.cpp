#include "ulp/runtime/plan/verified_plan.h"

#include "ulp/base/error.h"
#include "ulp/runtime/plan/step_view.h"
#include "ulp/runtime/plan/verify.h"

namespace ulp::runtime {

VerifiedPlan VerifiedPlan::check(const Plan& plan) {
  plan.verify();
  return VerifiedPlan(std::shared_ptr<const Plan>(std::shared_ptr<const Plan>(), &plan));
}

VerifiedPlan VerifiedPlan::check(Plan&& plan, ConstantFacts& facts) {
  auto own = std::make_shared<const Plan>(std::move(plan));
  try {
    verify_plan(*own, &facts);
  } catch (const PlanProblem& found) {
    fail("runtime.verify", found.text);
  }
  return VerifiedPlan(std::move(own));
}

VerifiedPlan VerifiedPlan::load(const std::filesystem::path& path) {
  return VerifiedPlan(std::make_shared<const Plan>(Plan::load(path)));
}

VerifiedPlan VerifiedPlan::load(std::span<const std::byte> file) {
  return VerifiedPlan(std::make_shared<const Plan>(Plan::load(file)));
}

}  // namespace ulp::runtime
