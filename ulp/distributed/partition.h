// The best cut of a row of things into consecutive parts, by dynamic programming; internal to the room.
#pragma once

#include <vector>

#include "ulp/base/parallel.h"

namespace ulp::distributed {

/// What a part [begin, end) costs, as part number `part`; infinity where it must not be.
using PartCost = FunctionRef<double(int part, int begin, int end)>;
/// How costs of parts make the cost of a cut.
enum class JoinedCost { largest, sum };

/// Where each of `parts` parts begins, so that the joined cost is least; no part is empty. Nothing where every cut costs
/// infinity.
std::vector<int> best_partition(int things, int parts, JoinedCost joined, PartCost cost);

}  // namespace ulp::distributed
