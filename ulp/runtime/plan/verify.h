// The checks that stand between a plan from anywhere and the kernels, which trust what they are given.
#pragma once

#include <cstdint>
#include <span>

#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime {

/// Elements one tensor may have per item, and one constant. Products of sizes below it fit in int64 with
/// room.
inline constexpr int64_t kMaxElements = int64_t{1} << 31;
/// Tensors, steps and constants of one plan.
inline constexpr size_t kMaxEntries = 65536;

struct ConstantFacts;

/// Throws PlanProblem on the first thing that is not as plan.h requires. With `facts`, constants that were looked through
/// before are not again.
void verify_plan(const Plan& plan, ConstantFacts* facts = nullptr);

/// The product of sizes that are all >= 1; -1 when one is not or the product exceeds kMaxElements. kBatch
/// counts as 1.
int64_t checked_elements(std::span<const int64_t> shape);

}  // namespace ulp::runtime
