// Matches the calls of runs of one model against each other.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/graph/capture/resolve.h"

namespace ulp::graph {

/// One run and what its tensors are.
struct Run {
  Trace trace;
  Resolved resolved;
};

/// Throws ulp::Error naming the first op that differs between runs at other sizes, where in the model it is,
/// and what may be done about it.
void check_same_calls(const Subject& subject, const Trace& a, const Trace& b);

/// Which calls of one operator are taken for each other where train mode makes more of them.
enum class Alignment : uint8_t {
  first,         ///< the earliest: train mode adds calls at its end
  same_numbers,  ///< the earliest with the same numbers as operands
  last           ///< the latest of these: train mode adds calls at its beginning
};

/// For each call of the run in train mode, the call of the run in eval mode that it is, or -1 for one that
/// train mode adds. Calls of eval mode that are nobody's are its own.
std::vector<int32_t> align(const Run& eval, const Run& train, Alignment how);

}  // namespace ulp::graph
