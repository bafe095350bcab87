#include "ulp/lower/example_sizes.h"

#include "ulp/base/error.h"

namespace ulp::lowering {

std::vector<int64_t> example_sizes(const graph::Graph& graph, const std::vector<at::Tensor>& examples,
                                   const char* where) {
  std::vector<int64_t> sizes;
  for (const graph::DynamicDimension& free : graph.free) {
    const auto [input, dim] = free.places[0];
    if (input >= examples.size() || !examples[input].defined() || dim >= examples[input].dim())
      fail(where, "expected an example with dimension ", dim, " as input ", input, " for '", free.name, "'");
    sizes.push_back(examples[input].size(dim));
  }
  return sizes;
}

}  // namespace ulp::lowering
