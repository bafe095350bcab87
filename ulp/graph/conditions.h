// Numbers that forward read from buffers and acted upon while the model was captured: the graph is the model as long as
// the buffers hold them.
#pragma once

#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

/// Under which name a graph keeps what `buffer` held at capture.
ULP_API std::string condition_of(const std::string& buffer);

/// A buffer, and what it has to hold.
struct Condition {
  std::string buffer;
  at::Tensor now, held;
};

/// Those of a graph.
ULP_API std::vector<Condition> conditions_of(const Graph& graph);

/// Throws Error, whose text begins with `where`, for the first buffer that holds other numbers; NaN is equal to NaN.
void check_conditions(const std::vector<Condition>& conditions, const char* where);

/// The same of a graph that is about to become something else: an engine, a file, a training step.
ULP_API void check_conditions(const Graph& graph, const char* where);

}  // namespace ulp::graph
