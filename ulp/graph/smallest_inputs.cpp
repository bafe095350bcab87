#include "ulp/graph/smallest_inputs.h"

#include <torch/types.h>

namespace ulp::graph {

std::optional<std::vector<at::Tensor>> smallest_inputs(const Graph& graph) {
  std::vector<int64_t> point = {graph.batch_range.nearest(1)};
  for (const DynamicDimension& free : graph.free) point.push_back(free.smallest());
  std::vector<at::Tensor> inputs;
  for (const Value* input : graph.inputs()) {
    if (!input->meta) return std::nullopt;
    std::vector<int64_t> sizes;
    for (const SizeExpr& size : input->meta->sizes) sizes.push_back(size.at(point));
    inputs.push_back(torch::zeros(sizes, input->meta->dtype));
  }
  return inputs;
}

}  // namespace ulp::graph
