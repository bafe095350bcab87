#include "ulp/prune/storage/sharing/share_module.h"

#include <torch/utils.h>

#include <algorithm>
#include <set>

#include "ulp/base/error.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/storage/sharing/shared_weights.h"
#include "ulp/quant/recipe.h"

namespace ulp::prune {
namespace {

using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

constexpr const char* kShareModuleWhere = "prune.share_weights";
constexpr const char* kOp = "ulp::share_weights";
const std::string kCodebookSuffix = ".codebook", kCodesSuffix = ".codes", kMaskSuffix = ".mask";

void check_patterns(const Graph& graph, const std::vector<LayerBits>& layers) {
  for (const LayerBits& rule : layers) {
    const auto is_meant = [&](const auto& item) {
      return item.second.kind == Attribute::Kind::parameter && quant::matches_module(rule.layer, item.first);
    };
    if (std::ranges::none_of(graph.attributes(), is_meant))
      fail(kShareModuleWhere, "expected layers to name parameters of the model, got '", rule.layer, "'");
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

void store(const char* where, Graph& graph, const std::string& name, Attribute::Kind kind,
           const at::Tensor& tensor) {
  if (graph.find_attribute(name) != nullptr)
    fail(where, "expected no tensor of the name '", name, "', got one");
  graph.set_attribute(name, {kind, tensor});
}

/// All names of a tensor, this one first.
std::vector<std::string> names_of(const Graph& graph, const std::string& name) {
  const at::Tensor& tensor = graph.find_attribute(name)->tensor;
  std::vector<std::string> names = {name};
  for (const auto& [other, attribute] : graph.attributes()) {
    if (other != name && attribute.tensor.is_same(tensor)) names.push_back(other);
  }
  return names;
}

/// What gives a tensor under one of its names.
std::vector<Value*> values_of(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<Value*> values;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::attribute && std::ranges::find(names, node->target()) != names.end())
      values.push_back(node->output());
  }
  return values;
}

/// The bits of a parameter of these names: the last rule for any of them wins.
int64_t bits_for(const ShareOptions& options, const std::vector<std::string>& names, int64_t dimensions) {
  int64_t bits = dimensions >= 2 ? options.kmeans.bits : 0;
  for (const LayerBits& rule : options.layers) {
    const auto is_meant = [&](const std::string& name) {
      return dimensions >= 2 ? quant::matches_module(rule.layer, name) : rule.layer == name;
    };
    if (std::ranges::any_of(names, is_meant)) bits = rule.bits;
  }
  return bits;
}

SharedWeights clustered(const std::string& name, const at::Tensor& weight, const KMeansOptions& options) {
  try {
    return cluster_weights(weight, options);
  } catch (const Error& error) {
    fail(kShareModuleWhere, "'", name, "' cannot be shared: ", error.what());
  }
}

/// Codes in the place of the parameter of these names; each keeps its own, which are one tensor again.
void replace(Graph& graph, const std::vector<std::string>& names, const KMeansOptions& options) {
  const std::string& first = names.front();
  const at::Tensor weight = graph.find_attribute(first)->tensor;
  SharedWeights shared = clustered(first, weight, options);
  shared.codebook.set_requires_grad(weight.requires_grad());
  for (const std::string& name : names) {
    const Attribute::Kind kind = graph.find_attribute(name)->kind;
    const Attribute::Kind beside = kind == Attribute::Kind::parameter ? Attribute::Kind::buffer : kind;
    store(kShareModuleWhere, graph, name + kCodebookSuffix, kind, shared.codebook);
    store(kShareModuleWhere, graph, name + kCodesSuffix, beside, shared.codes);
    if (shared.mask.defined()) store(kShareModuleWhere, graph, name + kMaskSuffix, beside, shared.mask);
  }
  graph::Argument mask = c10::IValue();
  if (shared.mask.defined()) mask = graph.attribute(first + kMaskSuffix);
  Node* node =
      graph.call(kOp, {graph.attribute(first + kCodebookSuffix), graph.attribute(first + kCodesSuffix), mask},
                 first_call(graph));
  const std::vector<Value*> plain = values_of(graph, names);
  node->output()->meta = plain.front()->meta;
  for (Value* value : plain) graph.replace_uses(value, node->output());
  for (const std::string& name : names) graph.erase_attribute(name);
}

/// Why a parameter stays; empty: it is shared in so many bits.
std::string refusal(const Graph& graph, const std::vector<std::string>& names, int64_t bits) {
  const at::Tensor& tensor = graph.find_attribute(names.front())->tensor;
  if (bits == 0) return tensor.dim() < 2 ? "it has fewer than two dimensions" : "left as it is by name";
  if (!tensor.is_floating_point()) return "it is not floating point";
  return values_of(graph, names).empty() ? "nothing reads it" : "";
}

/// ", also as b, c" for the names but the first.
std::string other_names(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 1; i < names.size(); ++i) text += (i == 1 ? ", also as " : ", ") + names[i];
  return text;
}

/// The plain weight in the place of what computes it, under all the names that its parts have.
void bake_node(const char* where, Graph& graph, Node* node) {
  std::vector<at::Tensor> tensors;
  std::vector<std::vector<std::string>> names;
  for (const Value* value : node->reads()) {
    tensors.push_back(graph.attribute_tensor(value));
    if (!tensors.back().defined())
      fail(where, "expected '", node->name(), "' to read stored tensors, got computed ones");
    names.push_back(names_of(graph, value->producer->target()));
  }
  at::Tensor weight =
      share_weights(tensors[0], tensors[1], tensors.size() > 2 ? std::optional(tensors[2]) : std::nullopt);
  weight.set_requires_grad(tensors[0].requires_grad());
  const auto plain_name = [](std::string name) {
    if (name.ends_with(kCodebookSuffix)) name.resize(name.size() - kCodebookSuffix.size());
    return name;
  };
  for (const std::string& name : names[0])
    store(where, graph, plain_name(name), graph.find_attribute(name)->kind, weight);
  graph.replace_uses(node->output(), graph.attribute(plain_name(names[0].front())));
  graph.erase(node);
  for (const std::vector<std::string>& part : names) {
    for (const std::string& name : part) graph.erase_attribute(name);
  }
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
  check_limits(kShareModuleWhere, *this);
}

int64_t ShareOptions::bits_of(const std::string& parameter, int64_t dimensions) const {
  return bits_for(*this, {parameter}, dimensions);
}

std::shared_ptr<graph::GraphModule> share_weights(const std::shared_ptr<graph::GraphModule>& captured,
                                                  const ShareOptions& options, graph::PassReport* report) {
  if (!captured) fail(kShareModuleWhere, "expected a captured model, got null");
  options.validate();
  const std::shared_ptr<Graph> graph = bake(*captured)->graph().clone();
  check_patterns(*graph, options.layers);
  graph::PassReport result;
  result.pass = "share_weights";
  const auto attributes = graph->attributes();  // a copy: sharing adds some
  std::set<const void*> seen;
  for (const auto& [name, attribute] : attributes) {
    const at::Tensor& tensor = attribute.tensor;
    if (attribute.kind != Attribute::Kind::parameter || !seen.insert(tensor.unsafeGetTensorImpl()).second)
      continue;
    const std::vector<std::string> names = names_of(*graph, name);
    KMeansOptions kmeans = options.kmeans;
    kmeans.bits = bits_for(options, names, tensor.dim());
    const std::string why = refusal(*graph, names, kmeans.bits);
    if (!why.empty()) {
      result.near_misses.push_back(name + " not shared: " + why);
      continue;
    }
    replace(*graph, names, kmeans);
    result.changes.push_back(name + " shares " +
                             std::to_string(graph->find_attribute(name + kCodebookSuffix)->tensor.numel()) +
                             " values" + other_names(names));
  }
  if (result.changes.empty()) fail(kShareModuleWhere, "expected at least one parameter to share, got none");
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
  for (Node* node : nodes) bake_node(kBake, *graph, node);
  return module_of(graph, *shared);
}

}  // namespace ulp::prune
