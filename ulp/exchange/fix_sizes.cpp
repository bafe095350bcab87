#include "ulp/exchange/fix_sizes.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/exchange/seen_values.h"
#include "ulp/exchange/store_fixed.h"

namespace ulp::exchange {

namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::SizeExpr;
using graph::TensorMeta;
using graph::Value;

std::vector<int64_t> free_sizes(const Graph& graph, std::map<std::string, int64_t> wanted,
                                const char* where) {
  std::vector<int64_t> sizes;
  for (const graph::DynamicDimension& free : graph.free) {
    const auto found = wanted.extract(free.name);
    sizes.push_back(found.empty() ? free.max : found.mapped());
  }
  if (!wanted.empty())
    fail(where, "expected sizes of free dimensions of the model, got one of '", wanted.begin()->first, "'");
  return sizes;
}

/// An argument without the batch.
void fix(Argument& argument, int64_t batch) {
  if (argument.kind == Argument::Kind::batch) argument = c10::IValue(argument.batch.at(batch));
  for (Argument& item : argument.items) fix(item, batch);
}

TensorMeta meta_of(const at::Tensor& tensor) {
  TensorMeta meta{.dtype = tensor.scalar_type(), .sizes = {}};
  for (const int64_t size : tensor.sizes()) meta.sizes.push_back({0, 1, size});
  return meta;
}

}  // namespace

void fix_sizes(Graph& graph, int64_t batch, const std::map<std::string, int64_t>& sizes, const char* where) {
  graph.batch_range.check(batch, where);
  graph.fix_free(free_sizes(graph, sizes, where));
  std::vector<at::Tensor> inputs;
  for (Value* input : graph.inputs()) {
    if (!input->meta) fail(where, "expected input '", input->name, "' to have known sizes");
    std::vector<int64_t> shape;
    for (SizeExpr& size : input->meta->sizes) {
      size = {0, 1, size.at(batch)};
      shape.push_back(size.offset);
    }
    inputs.push_back(torch::zeros(shape, input->meta->dtype));
  }
  const std::vector<Value*> values = computed_values(graph);
  const std::vector<at::Tensor> tensors = seen_values(graph, values, inputs);
  for (size_t i = 0; i < values.size(); ++i) values[i]->meta = meta_of(tensors.at(i));
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::attribute)
      node->output()->meta = meta_of(graph.attribute_tensor(node->output()));
    for (Argument& argument : node->args) fix(argument, batch);
  }
  store_fixed(graph, values, tensors, /*sizes_fixed=*/true);
}

}  // namespace ulp::exchange
