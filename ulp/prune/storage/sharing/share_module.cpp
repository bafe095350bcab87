#include "ulp/prune/storage/sharing/share_module.h"

#include <torch/utils.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/prune/storage/sharing/shared_weights.h"
#include "ulp/quant/recipe.h"

namespace ulp::prune {
namespace {

using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

constexpr const char* kWhere = "prune.share_weights";
constexpr const char* kOp = "ulp::share_weights";
const std::string kCodebook = ".codebook", kCodes = ".codes", kMask = ".mask";

void check_patterns(const Graph& graph, const std::vector<LayerBits>& layers) {
  for (const LayerBits& rule : layers) {
    const auto is_meant = [&](const auto& item) {
      return item.second.kind == Attribute::Kind::parameter && quant::matches_module(rule.layer, item.first);
    };
    if (std::ranges::none_of(graph.attributes(), is_meant))
      fail(kWhere, "expected layers to name parameters of the model, got '", rule.layer, "'");
  }
}

/// The first node that computes something.
Node* first_call(const Graph& graph) {
  const auto computes = [](const auto& node) {
    return node->kind() != Node::Kind::input && node->kind() != Node::Kind::attribute;
  };
  const auto found = std::ranges::find_if(graph.nodes(), computes);
  return found == graph.nodes().end() ? nullptr : found->get();
}

Value* store(const char* where, Graph& graph, const std::string& name, Attribute::Kind kind,
             const at::Tensor& tensor) {
  if (graph.find_attribute(name) != nullptr)
    fail(where, "expected no tensor of the name '", name, "', got one");
  graph.set_attribute(name, {kind, tensor});
  return graph.attribute(name);
}

SharedWeights clustered(const std::string& name, const at::Tensor& weight, const KMeansOptions& options) {
  try {
    return cluster_weights(weight, options);
  } catch (const Error& error) {
    fail(kWhere, "'", name, "' cannot be shared: ", error.what());
  }
}

/// Codes in the place of the parameter.
void replace(Graph& graph, const std::string& name, const KMeansOptions& options) {
  const at::Tensor weight = graph.find_attribute(name)->tensor;
  SharedWeights shared = clustered(name, weight, options);
  shared.codebook.set_requires_grad(weight.requires_grad());
  Value* plain = graph.attribute(name);
  graph::Argument mask = c10::IValue();
  Value* codebook = store(kWhere, graph, name + kCodebook, Attribute::Kind::parameter, shared.codebook);
  Value* codes = store(kWhere, graph, name + kCodes, Attribute::Kind::buffer, shared.codes);
  if (shared.mask.defined()) mask = store(kWhere, graph, name + kMask, Attribute::Kind::buffer, shared.mask);
  Node* node = graph.call(kOp, {codebook, codes, mask}, first_call(graph));
  node->output()->meta = plain->meta;
  graph.replace_uses(plain, node->output());
  graph.erase_attribute(name);
}

/// Why a parameter stays; empty: it is shared in so many bits.
std::string refusal(const Graph& graph, const std::string& name, const Attribute& attribute, int64_t bits) {
  if (bits == 0)
    return attribute.tensor.dim() < 2 ? "it has fewer than two dimensions" : "left as it is by name";
  if (!attribute.tensor.is_floating_point()) return "it is not floating point";
  const auto reads = [&](const auto& node) {
    return node->kind() == Node::Kind::attribute && node->target() == name;
  };
  return std::ranges::none_of(graph.nodes(), reads) ? "nothing reads it" : "";
}

std::shared_ptr<graph::GraphModule> module_of(const std::shared_ptr<Graph>& graph,
                                              const graph::GraphModule& like) {
  auto module = std::make_shared<graph::GraphModule>(graph, like.notes());
  module->train(like.is_training());
  return module;
}

}  // namespace

void LayerBits::visit_fields(FieldVisitor& visit) {
  visit({"layer", "Path of a module or name of a parameter; '*' matches any run of characters"}, layer);
  visit({"bits", "Bits of a code; 0 leaves the weights as they are", 0, 8}, bits);
}

void ShareOptions::visit_fields(FieldVisitor& visit) {
  visit({"kmeans", "How weights are clustered"}, kmeans);
  visit({"layers", "Exceptions for some layers"}, layers, LayerBits{});
}

void ShareOptions::validate() const {
  check_limits(kWhere, *this);
}

int64_t ShareOptions::bits_of(const std::string& parameter, int64_t dimensions) const {
  int64_t bits = dimensions >= 2 ? kmeans.bits : 0;
  for (const LayerBits& rule : layers) {
    const bool meant =
        dimensions >= 2 ? quant::matches_module(rule.layer, parameter) : rule.layer == parameter;
    if (meant) bits = rule.bits;
  }
  return bits;
}

std::shared_ptr<graph::GraphModule> share_weights(const std::shared_ptr<graph::GraphModule>& captured,
                                                  const ShareOptions& options, graph::PassReport* report) {
  if (!captured) fail(kWhere, "expected a captured model, got null");
  options.validate();
  const std::shared_ptr<Graph> graph = captured->graph().clone();
  check_patterns(*graph, options.layers);
  graph::PassReport result;
  result.pass = "share_weights";
  const auto attributes = graph->attributes();  // a copy: sharing adds some
  for (const auto& [name, attribute] : attributes) {
    if (attribute.kind != Attribute::Kind::parameter) continue;
    KMeansOptions kmeans = options.kmeans;
    kmeans.bits = options.bits_of(name, attribute.tensor.dim());
    const std::string why = refusal(*graph, name, attribute, kmeans.bits);
    if (!why.empty()) {
      result.near_misses.push_back(name + " not shared: " + why);
      continue;
    }
    replace(*graph, name, kmeans);
    result.changes.push_back(name + " shares " +
                             std::to_string(graph->find_attribute(name + kCodebook)->tensor.numel()) +
                             " values");
  }
  if (result.changes.empty()) fail(kWhere, "expected at least one parameter to share, got none");
  if (report != nullptr) *report = std::move(result);
  return module_of(graph, *captured);
}

std::shared_ptr<graph::GraphModule> bake_shared(const std::shared_ptr<graph::GraphModule>& shared) {
  constexpr const char* kBake = "prune.bake_shared";
  if (!shared) fail(kBake, "expected a captured model, got null");
  const std::shared_ptr<Graph> graph = shared->graph().clone();
  std::vector<Node*> nodes;
  for (const auto& node : graph->nodes()) {
    if (node->is(kOp)) nodes.push_back(node.get());
  }
  const at::NoGradGuard no_grad;
  for (Node* node : nodes) {
    std::vector<at::Tensor> tensors;
    std::vector<std::string> names;
    for (const Value* value : node->reads()) {
      tensors.push_back(graph->attribute_tensor(value));
      if (!tensors.back().defined())
        fail(kBake, "expected '", node->name(), "' to read stored tensors, got computed ones");
      names.push_back(value->producer->target());
    }
    at::Tensor weight =
        share_weights(tensors[0], tensors[1], tensors.size() > 2 ? std::optional(tensors[2]) : std::nullopt);
    weight.set_requires_grad(tensors[0].requires_grad());
    std::string name = names[0];
    if (name.ends_with(kCodebook)) name.resize(name.size() - kCodebook.size());
    graph->replace_uses(node->output(), store(kBake, *graph, name, Attribute::Kind::parameter, weight));
    graph->erase(node);
    for (const std::string& part : names) graph->erase_attribute(part);
  }
  return module_of(graph, *shared);
}

}  // namespace ulp::prune
