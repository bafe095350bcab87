// The plan as JSON, without the bytes of its constants: the "ulp.plan" entry of an engine file.
#pragma once

#include <string>

#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime {

/// Fields at their defaults are left out.
ULP_API std::string plan_to_json(const Plan& plan);

/// Every tensor, step and metadata entry; constants stay empty. Throws PlanProblem on text that is no plan:
/// bad JSON, a missing or unknown field, a wrong kind of value, an unknown word.
ULP_API Plan plan_from_json(const std::string& text);

}  // namespace ulp::runtime
