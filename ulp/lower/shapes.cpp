#include "ulp/lower/shapes.h"

#include <ATen/core/function_schema.h>

#include <map>
#include <string>

#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/libtorch/shape_propagation.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::SizeExpr;
using graph::TensorMeta;
using graph::Value;

namespace {

bool is_tensor(const Node& node, const Value& value) {
  if (node.kind() == Node::Kind::module) return true;
  if (node.kind() != Node::Kind::call) return false;
  const auto& returns = node.schema().returns();
  const bool list = returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::ListType;
  return list || returns.at(static_cast<size_t>(value.index)).type()->kind() == c10::TypeKind::TensorType;
}

std::vector<Value*> without_meta(const Graph& graph) {
  std::vector<Value*> found;
  for (const auto& node : graph.nodes()) {
    for (const auto& value : node->outputs()) {
      if (!value->meta && is_tensor(*node, *value)) found.push_back(value.get());
    }
  }
  return found;
}

/// A copy of the graph that returns the named values instead of its own result.
graph::GraphModule probe_of(const Graph& graph, const std::vector<Value*>& wanted) {
  const std::shared_ptr<Graph> copy = graph.clone();
  std::map<std::string, Value*> by_name;
  for (const auto& node : copy->nodes()) {
    // Passes spell ops in others, whose results may lie in another order than those that were viewed.
    if (node->target() == "aten::view")
      copy->retarget(node.get(), "aten::reshape", {node->args[0], node->args[1]});
    for (const auto& value : node->outputs()) by_name[value->name] = value.get();
  }
  std::vector<Argument> results;
  for (const Value* value : wanted) results.emplace_back(by_name.at(value->name));
  copy->set_output(Argument::tuple(std::move(results)));
  copy->remove_dead();
  return graph::GraphModule(copy);
}

}  // namespace

std::vector<at::Tensor> zeros_of(const Graph& graph, int64_t batch) {
  std::vector<at::Tensor> inputs;
  for (const Value* input : graph.inputs()) {
    if (!input->meta) {
      fail("lower.lower", "expected input '", input->name,
           "' to have known sizes, got none; pass example inputs to lower()");
    }
    std::vector<int64_t> sizes;
    for (const SizeExpr& size : input->meta->sizes) sizes.push_back(size.at(batch));
    inputs.push_back(torch::zeros(sizes, input->meta->dtype));
  }
  return inputs;
}

void complete_shapes(Graph& graph) {
  const std::vector<Value*> missing = without_meta(graph);
  if (missing.empty()) return;
  const torch::NoGradGuard no_grad;
  graph::GraphModule probe = probe_of(graph, missing);
  probe.eval();
  const int64_t batch = graph.batch_range.example(1);
  std::vector<at::Tensor> first, second;
  libtorch::with_shapes([&] {
    first = probe.forward_all(zeros_of(graph, batch));
    second = probe.forward_all(zeros_of(graph, batch + 1));
  });
  for (size_t i = 0; i < missing.size(); ++i) {
    TensorMeta meta{.dtype = first.at(i).scalar_type(), .sizes = {}, .channels_last = false};
    for (int64_t d = 0; d < first[i].dim(); ++d) {
      const int64_t slope = second.at(i).size(d) - first[i].size(d);
      meta.sizes.push_back({slope, 1, first[i].size(d) - batch * slope});
    }
    missing[i]->meta = meta;
  }
}

std::vector<at::Tensor> evaluate_fixed(const Graph& graph, const std::vector<Value*>& values) {
  if (values.empty()) return {};
  const torch::NoGradGuard no_grad;
  graph::GraphModule probe = probe_of(graph, values);
  probe.eval();
  return probe.forward_all(zeros_of(graph, graph.batch_range.example(0)));
}

void set_input_shapes(Graph& graph, const std::vector<at::Tensor>& examples) {
  const std::vector<Value*> inputs = graph.inputs();
  if (inputs.size() != examples.size()) {
    fail("lower.lower", "expected ", inputs.size(), " example inputs, got ", examples.size());
  }
  bool changed = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t batch = graph.batch_dims.at(i);
    if (!examples[i].defined() || examples[i].dim() <= batch) {
      fail("lower.lower", "expected example ", i, " ('", inputs[i]->name,
           "') to have its batch as dimension ", batch, ", got ",
           examples[i].defined() ? examples[i].dim() : 0, " dimensions");
    }
    TensorMeta meta{.dtype = examples[i].scalar_type(), .sizes = {}, .channels_last = false};
    for (int64_t d = 0; d < examples[i].dim(); ++d)
      meta.sizes.push_back(d == batch ? SizeExpr{1, 1, 0} : SizeExpr{0, 1, examples[i].size(d)});
    const std::optional<TensorMeta>& captured = inputs[i]->meta;
    if (captured && captured->dtype == meta.dtype && captured->sizes == meta.sizes) continue;
    inputs[i]->meta = meta;
    changed = true;
  }
  if (!changed) return;
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call && node->kind() != Node::Kind::module) continue;
    for (const auto& value : node->outputs()) value->meta.reset();
  }
}

}  // namespace ulp::lowering
