// Integer ids as an op reads them, and ids outside of their range as a step reports them.
#pragma once

#include <cmath>

#include "ulp/kernels/index/ids.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime {

/// Element i of an i32 or i64 tensor.
inline int64_t id_at(DataType type, const void* ids, int64_t i) {
  return type == DataType::i64 ? static_cast<const int64_t*>(ids)[i] : static_cast<const int32_t*>(ids)[i];
}

/// After a kernel: the id that it found to be bad, if any, goes to the run's slot.
inline void report_bad_id(const RunArgs& args, const kernels::FirstBadId& bad, const TensorInfo& info,
                          const void* ids, const kernels::IdRange& range) {
  if (!bad.any()) return;
  args.faults.slot.report({.step = args.faults.step,
                           .element = args.faults.first_item * item_elements(info) + bad.element(),
                           .id = id_at(info.type, ids, bad.element()),
                           .low = range.low(),
                           .high = range.size});
}

/// f32 holds all integers below.
inline constexpr int64_t kInexactInteger = int64_t{1} << 24;

/// Reports an integer of a step's result that f32 may have rounded; `element` from the first of the call.
inline void report_inexact(const RunArgs& args, const TensorInfo& result, int64_t element, float value) {
  constexpr float kLargest = 9e18F;  // below 2^63
  const bool fits = std::fabs(value) < kLargest;
  args.faults.slot.report({.step = args.faults.step,
                           .element = args.faults.first_item * item_elements(result) + element,
                           .id = fits ? static_cast<int64_t>(value) : IdFault::kNoInteger,
                           .low = -kInexactInteger + 1,
                           .high = kInexactInteger,
                           .kind = IdFault::Kind::result});
}

}  // namespace ulp::runtime
