// The plan as JSON, without the bytes of its constants: the "ulp.plan" entry of an engine file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime {

/// Fields at their defaults are left out.
ULP_API std::string plan_to_json(const Plan& plan);

/// Every tensor, step, metadata entry and what follows free dimensions; constants stay empty. Throws PlanProblem on text
/// that is no plan: bad JSON, a missing or unknown field, a wrong kind of value, an unknown word.
ULP_API Plan plan_from_json(const std::string& text);

/// Which attributes of steps are written.
enum class WrittenFields : uint8_t {
  changed,  ///< those that are not at their defaults, as in files
  all
};

/// The same without what follows free dimensions.
ULP_API nlohmann::json numbers_to_json(const Plan& plan, WrittenFields fields = WrittenFields::changed);
/// Reads what numbers_to_json() writes; other fields that a plan may have are passed over. Throws as plan_from_json() does.
Plan plan_from_numbers(const nlohmann::json& json);

}  // namespace ulp::runtime
