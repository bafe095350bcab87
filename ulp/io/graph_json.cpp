#include "ulp/io/graph_json.h"

#include <ATen/core/function_schema.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <unordered_set>

#include "ulp/base/error.h"
#include "ulp/io/argument_json.h"
#include "ulp/io/attribute_json.h"
#include "ulp/io/graph_operators.h"
#include "ulp/io/size_json.h"

namespace ulp::io {

namespace {

using graph::Argument;
using graph::AutocastSetting;
using graph::Graph;
using graph::Node;
using graph::Value;
using Json = nlohmann::json;

/// More nodes, and more tensors, than any network has: the time to put them into a graph grows with their square.
constexpr size_t kMostNodes = 10000;

/// Versions of a graph: readers that know the first alone would not see the bounds of the batch.
constexpr int64_t kPlainVersion = 1, kBoundedVersion = 2;

Json node_to_json(const Node& node) {
  Json json{{"name", node.name()}, {"target", node.target()}};
  if (!node.scope.empty()) json["scope"] = node.scope;
  const std::pair<const char*, bool> flags[] = {{"train_only", node.train_only},
                                                {"eval_only", node.eval_only},
                                                {"in_place", node.in_place},
                                                {"no_grad", node.no_grad}};
  for (const auto& [name, set] : flags)
    if (set) json[name] = true;
  if (node.autocast) {
    json["autocast"] = {{"device", c10::DeviceTypeName(node.autocast->device, /*lower_case=*/true)},
                        {"enabled", node.autocast->enabled},
                        {"dtype", type_name(node.autocast->dtype)}};
  }
  Json args = Json::array(), outputs = Json::array();
  for (const Argument& argument : node.args) args.push_back(argument_to_json(argument, node));
  for (const auto& value : node.outputs()) {
    Json output{{"name", value->name}};
    if (value->meta) output["meta"] = meta_to_json(*value->meta);
    outputs.push_back(std::move(output));
  }
  json["args"] = std::move(args);
  json["outputs"] = std::move(outputs);
  return json;
}

/// Puts nodes into a graph and knows the values by name.
class GraphBuilder {
 public:
  explicit GraphBuilder(Graph& graph) : graph_(graph) { known_.free_dimensions = graph.free.size(); }

  void add_input(const Json& json) {
    const std::string name = new_name(json);
    name_values(graph_.add_input(name, whole_number(json.at("batch_dim")))->producer, json);
  }
  void add_attribute(const Json& json) {
    new_name(json);
    name_values(graph_.attribute(json.at("target").get<std::string>())->producer, json);
  }
  void add_call(const Json& json) {
    const std::string target = json.at("target").get<std::string>(), name = new_name(json);
    check_operator(target);
    std::vector<Argument> args;
    for (const Json& argument : json.at("args")) args.push_back(argument_of(argument, known_));
    Node* node = graph_.call(target, std::move(args), nullptr, name);
    const auto& wanted = node->schema().arguments();
    for (size_t i = 0; i < node->args.size(); ++i) check_argument(wanted[i], node->args[i], name);
    const size_t count = json.at("outputs").size();
    if (count != node->outputs().size()) graph_.set_output_count(node, count);
    node->scope = json.value("scope", "");
    node->train_only = json.value("train_only", false);
    node->eval_only = json.value("eval_only", false);
    node->in_place = json.value("in_place", false);
    node->no_grad = json.value("no_grad", false);
    if (json.contains("autocast")) {
      const Json& setting = json.at("autocast");
      node->autocast = AutocastSetting{.device = c10::Device(setting.at("device").get<std::string>()).type(),
                                       .enabled = setting.at("enabled").get<bool>(),
                                       .dtype = type_of(setting.at("dtype").get<std::string>())};
    }
    name_values(node, json);
  }
  void set_result(const Json& json) {
    graph_.set_output(argument_of(json, known_));
    if (graph_.output_node()->reads().empty()) fail(kGraphFile, "expected a tensor as the result, got none");
  }

 private:
  /// Names are given once, so that the graph need not look for others that are free.
  std::string new_name(const Json& json) {
    auto name = json.at("name").get<std::string>();
    if (!names_.insert(name).second)
      fail(kGraphFile, "expected a name of its own for each node, got '", name, "' twice");
    return name;
  }
  void name_values(Node* node, const Json& json) {
    const Json& outputs = json.at("outputs");
    if (outputs.size() != node->outputs().size())
      fail(kGraphFile, "expected ", node->outputs().size(), " results of '", node->name(), "', got ",
           outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      Value& value = *node->output(i);
      value.name = outputs[i].at("name").get<std::string>();
      if (outputs[i].contains("meta")) value.meta = meta_of(outputs[i].at("meta"), known_.free_dimensions);
      const bool is_new =
          value.name == json.at("name").get<std::string>() || names_.insert(value.name).second;
      if (!known_.values.emplace(value.name, &value).second || !is_new)
        fail(kGraphFile, "expected a name of its own for each value, got '", value.name, "' twice");
    }
  }

  Graph& graph_;
  Known known_;
  std::unordered_set<std::string> names_;  ///< of nodes and values
};

/// An error for a batch or a free dimension that an input does not have.
void check_dimensions(const Graph& graph) {
  const std::vector<Value*> inputs = graph.inputs();
  const auto rank = [&](size_t input) {
    return inputs[input]->meta ? static_cast<int64_t>(inputs[input]->meta->sizes.size()) : 0;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph.batch_dims[i] < -1 || graph.batch_dims[i] >= std::max<int64_t>(rank(i), 1))
      fail(kGraphFile, "expected a batch dimension of '", inputs[i]->name, "', got ", graph.batch_dims[i]);
  }
  for (const graph::DynamicDimension& free : graph.free) {
    for (const auto& place : free.places) {
      if (place.input >= inputs.size() || place.dim < 0 || place.dim >= rank(place.input))
        fail(kGraphFile, "expected '", free.name, "' to be a dimension of an input");
    }
  }
}

}  // namespace

Json graph_to_json(const Graph& graph) {
  Json inputs = Json::array(), attributes = Json::array(), named = Json::array(), calls = Json::array(),
       free = Json::array();
  Json result;
  size_t input = 0;
  for (const auto& node : graph.nodes()) {
    switch (node->kind()) {
      case Node::Kind::input:
        inputs.push_back(node_to_json(*node));
        inputs.back()["batch_dim"] = graph.batch_dims.at(input++);
        break;
      case Node::Kind::attribute:
        named.push_back(node_to_json(*node));
        break;
      case Node::Kind::call:
        calls.push_back(node_to_json(*node));
        break;
      case Node::Kind::module:
        fail(kGraphFile, "expected a graph of operators, got the module '", node->target(),
             "': convert a model in calibration or quantized training first");
      case Node::Kind::output:
        result = argument_to_json(node->args.at(0), *node);
    }
  }
  for (const auto& [name, attribute] : graph.attributes())
    attributes.push_back(attribute_to_json(name, attribute));
  for (const graph::DynamicDimension& one : graph.free) free.push_back(free_to_json(one));
  Json json{{"version", kPlainVersion}, {"inputs", inputs}, {"attributes", attributes}, {"reads", named},
            {"calls", calls},           {"free", free},     {"result", result}};
  if (graph.batch_range.bounded()) {
    json["version"] = kBoundedVersion;
    json["batch"] = batch_range_to_json(graph.batch_range);
  }
  return json;
}

std::shared_ptr<Graph> graph_from_json(const Json& json, const std::map<std::string, at::Tensor>& tensors) {
  const int64_t version = whole_number(json.at("version"));
  if (version != kPlainVersion && version != kBoundedVersion)
    fail(kGraphFile, "expected version ", kPlainVersion, " or ", kBoundedVersion, " of a graph, got ",
         version);
  const size_t nodes = json.at("calls").size() + json.at("reads").size() + json.at("inputs").size();
  if (nodes > kMostNodes) fail(kGraphFile, "expected at most ", kMostNodes, " nodes, got ", nodes);
  if (const size_t count = json.at("attributes").size(); count > kMostNodes)
    fail(kGraphFile, "expected at most ", kMostNodes, " tensors, got ", count);
  auto graph = std::make_shared<Graph>();
  if (version == kBoundedVersion && !json.contains("batch"))
    fail(kGraphFile, "expected the range of the batch in version ", kBoundedVersion, " of a graph, got none");
  if (version == kBoundedVersion) graph->batch_range = batch_range_of(json.at("batch"));
  for (const Json& one : json.at("free")) graph->free.push_back(free_of(one));
  AttributeReader attributes(tensors);
  for (const Json& one : json.at("attributes")) attributes.add_to(*graph, one);
  GraphBuilder builder(*graph);
  for (const Json& one : json.at("inputs")) builder.add_input(one);
  for (const Json& one : json.at("reads")) builder.add_attribute(one);
  for (const Json& one : json.at("calls")) builder.add_call(one);
  builder.set_result(json.at("result"));
  check_dimensions(*graph);
  graph->verify();
  return graph;
}

}  // namespace ulp::io
