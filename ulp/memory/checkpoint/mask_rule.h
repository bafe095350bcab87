// Calls whose backward asks of a value only in which range its elements are.
#pragma once

#include <optional>

#include "ulp/graph/graph.h"

namespace ulp::memory {

/// The elements of the value that are above `low` and below `high` (NaN: no bound) let the gradient pass;
/// `inside` is one that does.
struct MaskRule {
  bool of_result = true;  ///< else of the first argument
  double low = 0, high = 0, inside = 0;
};

/// The rule of a call: relu, relu6 and hardtanh have one.
std::optional<MaskRule> mask_rule(const graph::Node& node);

}  // namespace ulp::memory
