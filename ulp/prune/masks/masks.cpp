#include "ulp/prune/masks/masks.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <set>

#include "ulp/base/error.h"
#include "ulp/graph/passes/fold_masks.h"
#include "ulp/prune/masks/bit_mask.h"

namespace ulp::prune {
namespace {

using graph::Argument;
using graph::Attribute;
using graph::Graph;
using graph::GraphModule;
using graph::Node;
using graph::Value;

constexpr const char* kApplyMask = "ulp::apply_mask";

/// The attribute of this name, which must be a parameter.
const Attribute& parameter_of(const char* where, const Graph& graph, const std::string& name) {
  const Attribute* found = graph.find_attribute(name);
  if (found == nullptr) fail(where, "expected the name of a parameter, got '", name, "'");
  if (found->kind != Attribute::Kind::parameter)
    fail(where, "expected the name of a parameter, got '", name, "', which is none");
  return *found;
}

/// The first name that the tensor has in the graph.
std::string first_name(const Graph& graph, const at::Tensor& tensor) {
  for (const auto& [name, attribute] : graph.attributes()) {
    if (attribute.tensor.is_same(tensor)) return name;
  }
  fail("prune.masks", "expected a tensor of the graph");
}

/// The nodes that give the tensor, under each of its names.
std::vector<Node*> givers(const Graph& graph, const at::Tensor& tensor) {
  std::vector<Node*> found;
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::attribute) continue;
    if (graph.attribute_tensor(node->output()).is_same(tensor)) found.push_back(node.get());
  }
  return found;
}

Node* mask_node(const Graph& graph, const at::Tensor& tensor) {
  for (const auto& node : graph.nodes()) {
    if (node->is(kApplyMask) && graph.attribute_tensor(node->args[0].value).is_same(tensor))
      return node.get();
  }
  return nullptr;
}

/// Why the parameter cannot be masked; empty where it can.
std::string obstacle(const Graph& graph, const std::string& name, const at::Tensor& tensor) {
  bool read = false;
  for (const Node* giver : givers(graph, tensor)) {
    for (const Node* user : graph.users(giver->output())) {
      if (user->kind() == Node::Kind::call && user->schema().is_mutable())
        return "expected a parameter that the model only reads, got '" + name + "', which '" + user->name() +
               "' writes";
      read = true;
    }
  }
  if (read) return {};
  return "expected a parameter that a node reads, got '" + name +
         "' (layers of quantization-aware training hold their weights themselves: set masks before, or "
         "use hold_masks())";
}

void check(const Graph& graph, const std::string& name, const at::Tensor& keep) {
  constexpr const char* kWhere = "prune.set_mask";
  const at::Tensor tensor = parameter_of(kWhere, graph, name).tensor;
  if (!keep.defined() || keep.scalar_type() != at::kBool || keep.sizes() != tensor.sizes()) {
    if (!keep.defined()) fail(kWhere, "expected a mask for '", name, "', got no tensor");
    fail(kWhere, "expected bools of shape ", tensor.sizes(), " for '", name, "', got ", keep.dtype(), ' ',
         keep.sizes());
  }
  if (!tensor.is_floating_point())
    fail(kWhere, "expected a parameter of floating-point numbers, got ", tensor.dtype(), " for '", name, "'");
  if (const std::string why = obstacle(graph, name, tensor); !why.empty()) fail(kWhere, why);
}

/// A name for the mask that nothing else has.
std::string mask_name(const Graph& graph, const std::string& parameter) {
  std::string name = parameter + "_mask";
  for (int i = 2; graph.find_attribute(name) != nullptr; ++i) name = parameter + "_mask_" + std::to_string(i);
  return name;
}

void attach(Graph& graph, const std::string& given_name, const at::Tensor& bits, bool dense_gradient) {
  const at::Tensor tensor = graph.find_attribute(given_name)->tensor;
  if (Node* node = mask_node(graph, tensor)) {
    graph.set_attribute(node->args[1].value->producer->target(), {Attribute::Kind::buffer, bits});
    node->args[2] = c10::IValue(dense_gradient);
    return;
  }
  const std::string name = first_name(graph, tensor), stored = mask_name(graph, name);
  graph.set_attribute(stored, {Attribute::Kind::buffer, bits});
  Value* mask = graph.attribute(stored);
  const auto first_call = std::ranges::find_if(graph.nodes(), [](const auto& node) {
    return node->kind() != Node::Kind::input && node->kind() != Node::Kind::attribute &&
           !node->is(kApplyMask);
  });
  const std::vector<Node*> from = givers(graph, tensor);
  Node* node = graph.call(kApplyMask, {from.front()->output(), mask, c10::IValue(dense_gradient)},
                          first_call->get(), from.front()->name() + "_masked");
  node->output()->meta = from.front()->output()->meta;
  for (const Node* giver : from) graph.replace_uses(giver->output(), node->output(), node);
}

void detach(Graph& graph, Node* node) {
  const std::string stored = node->args[1].value->producer->target();
  const at::Tensor tensor = graph.attribute_tensor(node->args[0].value);
  graph.replace_uses(node->output(), node->args[0].value);
  graph.erase(node);
  graph.erase_attribute(stored);
}

std::vector<Node*> mask_nodes(const Graph& graph) {
  std::vector<Node*> found;
  for (const auto& node : graph.nodes()) {
    if (node->is(kApplyMask) && graph.attribute_tensor(node->args[0].value).defined())
      found.push_back(node.get());
  }
  return found;
}

}  // namespace

void set_mask(GraphModule& module, const std::string& parameter, const at::Tensor& keep,
              bool dense_gradient) {
  set_masks(module, {{parameter, keep}}, dense_gradient);
}

void set_masks(GraphModule& module, const NewMasks& masks, bool dense_gradient) {
  std::set<const void*> seen;
  for (const auto& [name, keep] : masks) {
    check(module.graph(), name, keep);
    if (!seen.insert(module.graph().find_attribute(name)->tensor.unsafeGetTensorImpl()).second)
      fail("prune.set_masks", "expected one mask for each parameter, got a second one for '", name, "'");
  }
  std::vector<at::Tensor> bits;
  for (const auto& [name, keep] : masks) bits.push_back(pack_mask(keep));
  for (size_t i = 0; i < masks.size(); ++i) attach(module.graph(), masks[i].first, bits[i], dense_gradient);
  module.recompile();
}

void add_masks(GraphModule& module, const std::vector<std::string>& parameters, bool dense_gradient) {
  NewMasks made;
  for (const std::string& name : parameters) {
    at::Tensor keep = find_mask(module.graph(), name);
    if (!keep.defined()) keep = at::ones(module.graph().find_attribute(name)->tensor.sizes(), at::kBool);
    made.emplace_back(name, keep);
  }
  set_masks(module, made, dense_gradient);
}

void share_masks(GraphModule& to, const GraphModule& from) {
  const std::vector<ParameterMask> given = masks(from.graph());
  for (const ParameterMask& mask : given)
    check(to.graph(), mask.parameter, unpack_mask(mask.bits, mask.dense.sizes()));
  for (const ParameterMask& mask : given) attach(to.graph(), mask.parameter, mask.bits, mask.dense_gradient);
  to.recompile();
}

std::vector<ParameterMask> masks(const Graph& graph) {
  std::vector<ParameterMask> found;
  for (const auto& [name, attribute] : graph.attributes()) {
    if (attribute.kind != Attribute::Kind::parameter || first_name(graph, attribute.tensor) != name) continue;
    const Node* node = mask_node(graph, attribute.tensor);
    if (node == nullptr) continue;
    const at::Tensor bits = graph.attribute_tensor(node->args[1].value);
    const int64_t elements = attribute.tensor.numel();
    check_mask("prune.masks", ("a mask for '" + name + "'").c_str(), bits, elements);
    found.push_back(
        {name, attribute.tensor, bits, node->args[2].literal.toBool(), count_kept(bits), elements});
  }
  return found;
}

at::Tensor find_mask(const Graph& graph, const std::string& parameter) {
  const at::Tensor tensor = parameter_of("prune.find_mask", graph, parameter).tensor;
  const Node* node = mask_node(graph, tensor);
  if (node == nullptr) return {};
  return unpack_mask(graph.attribute_tensor(node->args[1].value), tensor.sizes());
}

void remove_mask(GraphModule& module, const std::string& parameter) {
  constexpr const char* kWhere = "prune.remove_mask";
  Graph& graph = module.graph();
  Node* node = mask_node(graph, parameter_of(kWhere, graph, parameter).tensor);
  if (node == nullptr) fail(kWhere, "expected a parameter with a mask, got '", parameter, "'");
  detach(graph, node);
  module.recompile();
}

void remove_masks(GraphModule& module) {
  const std::vector<Node*> nodes = mask_nodes(module.graph());
  for (Node* node : nodes) detach(module.graph(), node);
  if (!nodes.empty()) module.recompile();
}

std::shared_ptr<GraphModule> bake(const GraphModule& module) {
  masks(module.graph());  // throws where one is damaged
  const std::shared_ptr<Graph> copy = module.graph().clone();
  graph::fold_masks(*copy);
  auto baked = std::make_shared<GraphModule>(copy, module.notes());
  baked->train(module.is_training());
  return baked;
}

}  // namespace ulp::prune
