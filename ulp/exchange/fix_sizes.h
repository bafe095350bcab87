// A graph for one set of sizes, for files whose sizes are numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ulp/graph/graph.h"

namespace ulp::exchange {

/// Puts `batch` and the sizes of free dimensions, by their names, in the place of what follows them, in place. A free dimension that
/// is not named gets its largest size. What follows no numbers of the inputs is computed here and becomes a stored tensor,
/// except for weights in codes. All values know their sizes after it. Throws ulp::Error, whose text begins with `where`, for
/// an input without sizes, for a name that no free dimension has, and for a size outside its range.
void fix_sizes(graph::Graph& graph, int64_t batch, const std::map<std::string, int64_t>& sizes,
               const char* where);

}  // namespace ulp::exchange
