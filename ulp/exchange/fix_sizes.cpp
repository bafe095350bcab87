#include "ulp/exchange/fix_sizes.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/exchange/seen_values.h"

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
  for (const graph::FreeDimension& free : graph.free) {
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

bool is_weight_in_codes(const Node& node) {
  return node.is("ulp::dequantize_weight") || node.is("ulp::dequantize");
}

/// Ops that read the sizes of their argument alone.
bool reads_sizes(const Node& node) {
  constexpr std::string_view kOps[] = {"aten::zeros_like", "aten::ones_like", "aten::full_like",
                                       "aten::new_zeros",  "aten::new_ones",  "aten::new_full"};
  return std::ranges::any_of(kOps, [&](std::string_view op) { return node.is(op); });
}

/// Values that follow stored tensors alone.
std::unordered_set<const Value*> fixed_values(const Graph& graph) {
  std::unordered_set<const Value*> fixed;
  for (const auto& node : graph.nodes()) {
    const auto is_fixed = [&](const Value* value) { return fixed.contains(value); };
    const bool computed = runs_in_eval(*node) && !node->has_effect() && !is_weight_in_codes(*node) &&
                          (reads_sizes(*node) || std::ranges::all_of(node->reads(), is_fixed));
    if (!computed && node->kind() != Node::Kind::attribute) continue;
    for (const auto& output : node->outputs()) fixed.insert(output.get());
  }
  return fixed;
}

/// The name of what the node makes of stored tensors: that of the one which it reads, or its own.
std::string stored_name(const Graph& graph, const Node& node) {
  const std::vector<Value*> reads = node.reads();
  const bool one = reads.size() == 1 && reads[0]->producer->kind() == Node::Kind::attribute;
  return graph.unique_name((one ? reads[0]->producer->target() : node.output()->name) + ".folded");
}

void store_fixed(Graph& graph, const std::vector<Value*>& values, const std::vector<at::Tensor>& tensors) {
  const std::unordered_set<const Value*> fixed = fixed_values(graph);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!fixed.contains(values[i])) continue;
    const auto leaves = [&](const Node* user) {
      return user->outputs().empty() || !fixed.contains(user->output());
    };
    if (std::ranges::none_of(graph.users(values[i]), leaves)) continue;
    const std::string name = stored_name(graph, *values[i]->producer);
    graph.set_attribute(name, {graph::Attribute::Kind::constant, tensors[i].detach().contiguous()});
    Value* stored = graph.attribute(name);
    stored->meta = values[i]->meta;
    graph.replace_uses(values[i], stored);
  }
  graph.remove_dead(/*attributes=*/true);
}

}  // namespace

void fix_sizes(Graph& graph, int64_t batch, const std::map<std::string, int64_t>& sizes, const char* where) {
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
  store_fixed(graph, values, tensors);
}

}  // namespace ulp::exchange
