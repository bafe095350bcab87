// Numbers that forward read from buffers and acted upon while the model was captured: the graph is the model as long as
// the buffers hold them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

/// The modes in which forward reads a buffer's numbers.
enum class ReadIn : uint8_t { both, eval, train };

/// Under which name a graph keeps what `buffer` held at capture.
ULP_API std::string condition_of(const std::string& buffer, ReadIn modes = ReadIn::both);

/// A buffer, what it has to hold, and in which modes.
struct Condition {
  std::string buffer;
  at::Tensor now, held;
  ReadIn modes = ReadIn::both;
  bool counts(bool training) const { return modes == ReadIn::both || (modes == ReadIn::train) == training; }
};

/// Those of a graph.
ULP_API std::vector<Condition> conditions_of(const Graph& graph);

/// Throws Error, whose text begins with `where`, for the first buffer that the mode reads and that holds
/// other numbers; NaN is equal to NaN.
void check_conditions(const std::vector<Condition>& conditions, bool training, const char* where);

/// The same in eval mode, of a graph that is about to become something else that infers: an engine, a file.
ULP_API void check_conditions(const Graph& graph, const char* where);

}  // namespace ulp::graph
