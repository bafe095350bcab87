#include "ulp/runtime/plan/verified_plan.h"

namespace ulp::runtime {

VerifiedPlan VerifiedPlan::check(const Plan& plan) {
  plan.verify();
  return VerifiedPlan(std::shared_ptr<const Plan>(std::shared_ptr<const Plan>(), &plan));
}

VerifiedPlan VerifiedPlan::load(const std::filesystem::path& path) {
  return VerifiedPlan(std::make_shared<const Plan>(Plan::load(path)));
}

}  // namespace ulp::runtime
