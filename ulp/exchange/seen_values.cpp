#include "ulp/exchange/seen_values.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <map>
#include <string>
#include <utility>

#include "ulp/graph/graph_module.h"

namespace ulp::exchange {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

bool runs_in_eval(const Node& node) {
  return node.kind() == Node::Kind::call && !node.train_only;
}

std::vector<Value*> computed_values(const Graph& graph) {
  std::vector<Value*> values;
  for (const auto& node : graph.nodes()) {
    if (!runs_in_eval(*node)) continue;
    for (const auto& output : node->outputs()) values.push_back(output.get());
  }
  return values;
}

std::vector<at::Tensor> seen_values(const Graph& graph, const std::vector<Value*>& values,
                                    const std::vector<at::Tensor>& inputs) {
  if (values.empty()) return {};
  const torch::NoGradGuard no_grad;
  const std::shared_ptr<Graph> probe = graph.clone();
  std::map<std::string, Value*> by_name;
  for (Value* value : computed_values(*probe)) by_name[value->name] = value;
  std::vector<Argument> results;
  for (const Value* value : values) results.emplace_back(by_name.at(value->name));
  probe->set_output(Argument::tuple(std::move(results)));
  probe->remove_dead();
  graph::GraphModule module(probe);
  module.eval();
  return module.forward_all(inputs);
}

}  // namespace ulp::exchange
