// Which activation of the table (base/activation.h) a call computes, whatever its spelling.
#pragma once

#include <optional>

#include "ulp/base/activation.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

/// min(max(x, low), high).
struct ClampBounds {
  float low, high;
};

/// The bounds of hardtanh, clamp, clamp_min and clamp_max by literal numbers, and of the table's clamps
/// (relu, relu6); nothing for every other node.
ULP_API std::optional<ClampBounds> clamp_bounds(const Node& node);

/// The activation that the call computes: a clamp by its bounds, everything else by the op and the literal
/// arguments of its spelling in the table, in place or not. Nothing for every other node.
ULP_API std::optional<Activation> activation_of(const Node& node);

/// The activation is a clamp: min and max, which integers know, too.
ULP_API bool is_clamp(const Node& node);

}  // namespace ulp::graph
