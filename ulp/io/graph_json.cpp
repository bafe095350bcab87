#include "ulp/io/graph_json.h"

#include <ATen/core/function_schema.h>
#include <c10/core/Device.h>

#include <cmath>
#include <functional>
#include <limits>
#include <unordered_map>

#include "ulp/base/error.h"

namespace ulp::io {

namespace {

using graph::Argument;
using graph::AutocastSetting;
using graph::Graph;
using graph::Node;
using graph::SizeExpr;
using graph::TensorMeta;
using graph::Value;
using Json = nlohmann::json;

constexpr const char* kWhere = "io.graph_file";
/// More nodes and deeper arguments than any network has.
constexpr size_t kMostNodes = 20000;
constexpr int kMostDeep = 16;

// Types.

std::string type_name(at::ScalarType type) {
  return c10::toString(type);
}

at::ScalarType type_of(const std::string& name) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<at::ScalarType>(i);
    if (name == c10::toString(type) && type != at::ScalarType::Undefined) return type;
  }
  fail(kWhere, "expected the name of a dtype, got '", name, "'");
}

// Sizes.

Json to_json(const Polynomial& polynomial) {
  Json terms = Json::array();
  for (const Polynomial::Term& term : polynomial.terms)
    terms.push_back({term.numerator, term.denominator, term.powers});
  return terms;
}

Polynomial polynomial_of(const Json& json) {
  Polynomial polynomial;
  for (const Json& term : json) {
    polynomial.terms.push_back(
        {term.at(0).get<int64_t>(), term.at(1).get<int64_t>(), term.at(2).get<std::vector<int32_t>>()});
    if (polynomial.terms.back().denominator <= 0) fail(kWhere, "expected denominators above 0");
  }
  return polynomial;
}

Json to_json(const SizeExpr& size) {
  if (size.constant()) return size.offset;
  Json json{{"numerator", size.numerator}, {"denominator", size.denominator}, {"offset", size.offset}};
  if (!size.rest.terms.empty()) json["rest"] = to_json(size.rest);
  return json;
}

SizeExpr size_of(const Json& json) {
  if (json.is_number_integer()) return {0, 1, json.get<int64_t>()};
  SizeExpr size{json.at("numerator").get<int64_t>(), json.at("denominator").get<int64_t>(),
                json.at("offset").get<int64_t>()};
  if (size.denominator <= 0) fail(kWhere, "expected a denominator above 0, got ", size.denominator);
  if (json.contains("rest")) size.rest = polynomial_of(json.at("rest"));
  return size;
}

Json to_json(const TensorMeta& meta) {
  Json sizes = Json::array();
  for (const SizeExpr& size : meta.sizes) sizes.push_back(to_json(size));
  Json json{{"dtype", type_name(meta.dtype)}, {"sizes", std::move(sizes)}};
  if (meta.channels_last) json["channels_last"] = true;
  return json;
}

TensorMeta meta_of(const Json& json) {
  TensorMeta meta{.dtype = type_of(json.at("dtype").get<std::string>()),
                  .sizes = {},
                  .channels_last = json.value("channels_last", false)};
  for (const Json& size : json.at("sizes")) meta.sizes.push_back(size_of(size));
  return meta;
}

// Literals.

Json number(double value) {
  if (std::isfinite(value)) return value;
  return {{"float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
}

double number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const auto word = json.at("float").get<std::string>();
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word != "inf" && word != "-inf") fail(kWhere, "expected nan, inf or -inf, got '", word, "'");
  return word == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

Json literal_to_json(const c10::IValue& value, const Node& node) {
  if (value.isNone()) return nullptr;
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return number(value.toDouble());
  if (value.isString()) return value.toStringRef();
  if (value.isDevice()) return {{"device", value.toDevice().str()}};
  if (value.isIntList()) return {{"ints", value.toIntVector()}};
  if (value.isBoolList()) {
    Json flags = Json::array();
    for (const bool flag : value.toBoolList()) flags.push_back(flag);
    return {{"bools", std::move(flags)}};
  }
  if (value.isDoubleList()) {
    Json numbers = Json::array();
    for (const double one : value.toDoubleVector()) numbers.push_back(number(one));
    return {{"floats", std::move(numbers)}};
  }
  if (value.isTensor() && !value.toTensor().defined()) return {{"undefined", true}};
  fail(kWhere, "expected numbers, strings, devices and lists of numbers as arguments, got a ",
       value.tagKind(), " at '", node.name(), "' (", node.target(), ")");
}

c10::IValue literal_of(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.contains("float")) return number_of(json);
  if (json.contains("device")) return c10::Device(json.at("device").get<std::string>());
  if (json.contains("ints")) return json.at("ints").get<std::vector<int64_t>>();
  if (json.contains("undefined")) return at::Tensor();
  if (json.contains("bools")) {
    c10::List<bool> flags;
    for (const Json& flag : json.at("bools")) flags.push_back(flag.get<bool>());
    return flags;
  }
  std::vector<double> numbers;
  for (const Json& one : json.at("floats")) numbers.push_back(number_of(one));
  return numbers;
}

// Arguments.

Json to_json(const Argument& argument, const Node& node) {
  const auto items = [&] {
    Json all = Json::array();
    for (const Argument& item : argument.items) all.push_back(to_json(item, node));
    return all;
  };
  switch (argument.kind) {
    case Argument::Kind::literal:
      return literal_to_json(argument.literal, node);
    case Argument::Kind::value:
      return {{"value", argument.value->name}};
    case Argument::Kind::batch:
      return {{"size", to_json(argument.batch)}};
    case Argument::Kind::training:
      return {{"training", !argument.inverted}};
    case Argument::Kind::by_mode:
      return {{"by_mode", items()}};
    case Argument::Kind::list:
      return {{"list", items()}};
    case Argument::Kind::tuple:
      return {{"tuple", items()}};
  }
  fail(kWhere, "expected a known kind of argument at '", node.name(), "'");
}

using Values = std::unordered_map<std::string, Value*>;

Argument argument_of(const Json& json, const Values& values, int depth = 0) {
  if (depth > kMostDeep) fail(kWhere, "expected arguments at most ", kMostDeep, " deep");
  const auto items = [&](const char* kind) {
    std::vector<Argument> all;
    for (const Json& item : json.at(kind)) all.push_back(argument_of(item, values, depth + 1));
    return all;
  };
  if (!json.is_object()) return literal_of(json);
  if (json.contains("value")) {
    const auto name = json.at("value").get<std::string>();
    const auto found = values.find(name);
    if (found == values.end())
      fail(kWhere, "expected values that are made before they are read, got '", name, "'");
    return found->second;
  }
  if (json.contains("size")) return size_of(json.at("size"));
  if (json.contains("training")) return Argument::training_flag(!json.at("training").get<bool>());
  if (json.contains("list")) return Argument::list(items("list"));
  if (json.contains("tuple")) return Argument::tuple(items("tuple"));
  if (!json.contains("by_mode")) return literal_of(json);
  std::vector<Argument> both = items("by_mode");
  if (both.size() != 2) fail(kWhere, "expected two arguments by mode, got ", both.size());
  Argument chosen = Argument::by_mode({}, {});
  chosen.items = std::move(both);
  return chosen;
}

/// An error unless the operator can take the literal: LibTorch finds out in the middle of a run, or not at all.
void check_literal(const c10::Argument& wanted, const Argument& given, const std::string& node) {
  if (given.kind != Argument::Kind::literal) return;
  c10::TypePtr type = wanted.type();
  if (type->kind() == c10::TypeKind::OptionalType) {
    if (given.literal.isNone()) return;
    type = type->containedType(0);
  }
  if (type->kind() == c10::TypeKind::FloatType && given.literal.isInt()) return;
  if (type->kind() == c10::TypeKind::GeneratorType && given.literal.isNone()) return;
  if (!given.literal.type()->isSubtypeOf(*type)) {
    fail(kWhere, "expected a ", type->str(), " as '", wanted.name(), "' of '", node, "', got a ",
         given.literal.type()->str());
  }
}

// Nodes.

Json to_json(const Node& node) {
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
  for (const Argument& argument : node.args) args.push_back(to_json(argument, node));
  for (const auto& value : node.outputs()) {
    Json output{{"name", value->name}};
    if (value->meta) output["meta"] = to_json(*value->meta);
    outputs.push_back(std::move(output));
  }
  json["args"] = std::move(args);
  json["outputs"] = std::move(outputs);
  return json;
}

/// Names an operator that computes with tensors and touches nothing else.
void check_target(const std::string& target) {
  const bool known = target.starts_with("aten::") || target.starts_with("ulp::");
  if (!known || target.starts_with("aten::from_file"))
    fail(kWhere, "expected an operator of aten or ulp, got '", target, "'");
}

/// Puts nodes into a graph and knows the values by name.
class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  void add_input(const Json& json) {
    name_values(
        graph_.add_input(json.at("name").get<std::string>(), json.at("batch_dim").get<int64_t>())->producer,
        json);
  }
  void add_attribute(const Json& json) {
    name_values(graph_.attribute(json.at("target").get<std::string>())->producer, json);
  }
  void add_call(const Json& json) {
    const auto target = json.at("target").get<std::string>(), name = json.at("name").get<std::string>();
    check_target(target);
    std::vector<Argument> args;
    for (const Json& argument : json.at("args")) args.push_back(argument_of(argument, values_));
    Node* node = graph_.call(target, std::move(args), nullptr, name);
    const auto& wanted = node->schema().arguments();
    for (size_t i = 0; i < node->args.size(); ++i) check_literal(wanted[i], node->args[i], name);
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
  void set_result(const Json& json) { graph_.set_output(argument_of(json, values_)); }

 private:
  void name_values(Node* node, const Json& json) {
    const Json& outputs = json.at("outputs");
    if (outputs.size() != node->outputs().size())
      fail(kWhere, "expected ", node->outputs().size(), " results of '", node->name(), "', got ",
           outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      Value& value = *node->output(i);
      value.name = outputs[i].at("name").get<std::string>();
      if (outputs[i].contains("meta")) value.meta = meta_of(outputs[i].at("meta"));
      if (!values_.emplace(value.name, &value).second)
        fail(kWhere, "expected a name of its own for each value, got '", value.name, "' twice");
    }
  }

  Graph& graph_;
  Values values_;
};

Json attribute_to_json(const std::string& name, const graph::Attribute& attribute) {
  static constexpr const char* kKinds[] = {"parameter", "buffer", "constant"};
  const at::Tensor& tensor = attribute.tensor;
  Json json{{"name", name}, {"kind", kKinds[static_cast<size_t>(attribute.kind)]}};
  if (tensor.requires_grad()) json["requires_grad"] = true;
  if (tensor.dim() == 4 && !tensor.is_contiguous() && tensor.is_contiguous(at::MemoryFormat::ChannelsLast))
    json["channels_last"] = true;
  return json;
}

void add_attribute(Graph& graph, const Json& json, const std::map<std::string, at::Tensor>& tensors,
                   std::unordered_map<const void*, at::Tensor>& laid_out) {
  const auto name = json.at("name").get<std::string>(), kind = json.at("kind").get<std::string>();
  const auto found = tensors.find(name);
  if (found == tensors.end()) fail(kWhere, "expected a tensor '", name, "', got none");
  if (graph.find_attribute(name) != nullptr) fail(kWhere, "expected '", name, "' once, got it twice");
  // Names that are one tensor stay one.
  at::Tensor& tensor = laid_out.try_emplace(found->second.unsafeGetTensorImpl(), found->second).first->second;
  if (json.value("channels_last", false)) {
    if (tensor.dim() != 4) fail(kWhere, "expected 4 dimensions of '", name, "', got ", tensor.dim());
    tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
  }
  const bool learns = json.value("requires_grad", false);
  if (learns && !tensor.is_floating_point()) fail(kWhere, "expected floating-point numbers as '", name, "'");
  if (learns) tensor.set_requires_grad(true);
  using Kind = graph::Attribute::Kind;
  if (kind != "parameter" && kind != "buffer" && kind != "constant")
    fail(kWhere, "expected parameter, buffer or constant as the kind of '", name, "', got '", kind, "'");
  graph.set_attribute(name, {kind == "parameter" ? Kind::parameter
                             : kind == "buffer"  ? Kind::buffer
                                                 : Kind::constant,
                             tensor});
}

Json free_to_json(const graph::FreeDimension& free) {
  Json places = Json::array();
  for (const auto& place : free.places) places.push_back({place.input, place.dim});
  return {{"name", free.name},
          {"min", free.min},
          {"max", free.max},
          {"multiple", free.multiple},
          {"places", places}};
}

graph::FreeDimension free_of(const Json& json) {
  graph::FreeDimension free;
  free.name = json.at("name").get<std::string>();
  free.min = json.at("min").get<int64_t>();
  free.max = json.at("max").get<int64_t>();
  free.multiple = json.at("multiple").get<int64_t>();
  if (free.min < 0 || free.max < free.min || free.multiple < 1)
    fail(kWhere, "expected a range of sizes for '", free.name, "'");
  for (const Json& place : json.at("places"))
    free.places.push_back({place.at(0).get<size_t>(), place.at(1).get<int64_t>()});
  return free;
}

/// An error for a batch or a free dimension that an input does not have.
void check_dimensions(const Graph& graph) {
  const std::vector<Value*> inputs = graph.inputs();
  const auto rank = [&](size_t input) {
    return inputs[input]->meta ? static_cast<int64_t>(inputs[input]->meta->sizes.size()) : 0;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph.batch_dims[i] < -1 || graph.batch_dims[i] >= std::max<int64_t>(rank(i), 1))
      fail(kWhere, "expected a batch dimension of '", inputs[i]->name, "', got ", graph.batch_dims[i]);
  }
  for (const graph::FreeDimension& free : graph.free) {
    for (const auto& place : free.places) {
      if (place.input >= inputs.size() || place.dim < 0 || place.dim >= rank(place.input))
        fail(kWhere, "expected '", free.name, "' to be a dimension of an input");
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
        inputs.push_back(to_json(*node));
        inputs.back()["batch_dim"] = graph.batch_dims.at(input++);
        break;
      case Node::Kind::attribute:
        named.push_back(to_json(*node));
        break;
      case Node::Kind::call:
        calls.push_back(to_json(*node));
        break;
      case Node::Kind::module:
        fail(kWhere, "expected a graph of operators, got the module '", node->target(),
             "': convert a model in calibration or quantized training first");
      case Node::Kind::output:
        result = to_json(node->args.at(0), *node);
    }
  }
  for (const auto& [name, attribute] : graph.attributes())
    attributes.push_back(attribute_to_json(name, attribute));
  for (const graph::FreeDimension& one : graph.free) free.push_back(free_to_json(one));
  return {{"version", 1},   {"inputs", inputs}, {"attributes", attributes}, {"reads", named},
          {"calls", calls}, {"free", free},     {"result", result}};
}

std::shared_ptr<Graph> graph_from_json(const Json& json, const std::map<std::string, at::Tensor>& tensors) {
  if (const auto version = json.at("version").get<int64_t>(); version != 1)
    fail(kWhere, "expected version 1 of a graph, got ", version);
  if (json.at("calls").size() + json.at("reads").size() + json.at("inputs").size() > kMostNodes)
    fail(kWhere, "expected at most ", kMostNodes, " nodes, got ", json.at("calls").size());
  auto graph = std::make_shared<Graph>();
  std::unordered_map<const void*, at::Tensor> laid_out;
  for (const Json& one : json.at("attributes")) add_attribute(*graph, one, tensors, laid_out);
  Builder builder(*graph);
  for (const Json& one : json.at("inputs")) builder.add_input(one);
  for (const Json& one : json.at("reads")) builder.add_attribute(one);
  for (const Json& one : json.at("calls")) builder.add_call(one);
  for (const Json& one : json.at("free")) graph->free.push_back(free_of(one));
  builder.set_result(json.at("result"));
  check_dimensions(*graph);
  graph->verify();
  return graph;
}

}  // namespace ulp::io
