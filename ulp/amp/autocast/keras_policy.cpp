#include "ulp/amp/autocast/keras_policy.h"

#include <ATen/core/function_schema.h>
#include <fnmatch.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ulp/amp/autocast/policy_scope.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/scope.h"
#include "ulp/graph/graph_module.h"

namespace ulp::amp {

namespace {

using graph::Argument;
using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

constexpr DtypePolicy kPolicies[] = {{"float32", c10::kFloat, c10::kFloat},
                                     {"mixed_float16", c10::kHalf, c10::kFloat},
                                     {"mixed_bfloat16", c10::kBFloat16, c10::kFloat},
                                     {"float16", c10::kHalf, c10::kHalf},
                                     {"bfloat16", c10::kBFloat16, c10::kBFloat16}};

bool matches(const std::string& pattern, const std::string& path) {
  return fnmatch(pattern.c_str(), path.c_str(), 0) == 0 ||
         fnmatch((pattern + ".*").c_str(), path.c_str(), 0) == 0;
}

/// Every module path of the model, the model itself ("") included.
std::set<std::string> paths_of(const Graph& graph) {
  std::set<std::string> paths = {""};
  const auto add = [&](std::string path) {
    for (; !path.empty(); path = graph::parent_path(path)) paths.insert(path);
  };
  for (const auto& node : graph.nodes()) add(node->scope);
  for (const auto& [name, attribute] : graph.attributes()) add(graph::parent_path(name));
  return paths;
}

/// The rules with what each of them decided.
class Rules {
 public:
  Rules(const std::vector<PolicyRule>& rules, const std::set<std::string>& paths) : rules_(rules) {
    for (const PolicyRule& rule : rules) {
      policies_.push_back(&find_dtype_policy(rule.policy));
      const bool any =
          std::any_of(paths.begin(), paths.end(), [&](const auto& path) { return matches(rule.path, path); });
      if (any) continue;
      std::string known;
      for (const std::string& path : paths) {
        if (!path.empty()) known += (known.empty() ? "" : ", ") + path;
      }
      fail("amp.apply_policy", "expected the path of a module of the model (", known, "), got '", rule.path,
           "'");
    }
    used_.resize(rules.size());
  }

  const DtypePolicy* find(const std::string& path) {
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (!matches(rules_[i].path, path)) continue;
      used_[i] = true;
      return policies_[i];
    }
    return nullptr;
  }

  std::vector<std::string> unused() const {
    std::vector<std::string> result;
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (!used_[i]) result.push_back("'" + rules_[i].path + "' decides nothing: rules before it do");
    }
    return result;
  }

 private:
  const std::vector<PolicyRule>& rules_;
  std::vector<const DtypePolicy*> policies_;
  std::vector<bool> used_;
};

/// Writes casts into the graph.
class Caster {
 public:
  explicit Caster(Graph& graph) : graph_(graph) {}

  /// Makes `node` compute in `dtype`; returns how many casts that took.
  int cast_inputs(Node& node, c10::ScalarType dtype) {
    made_ = 0;
    const bool looks_up = node.is("aten::embedding") || node.is("aten::embedding_bag");
    if (looks_up) {
      cast_output(node, dtype);
      return made_;
    }
    bool all_cast = true;
    const size_t count = node.is("aten::batch_norm") ? 1 : node.args.size();
    for (size_t i = 0; i < count; ++i) {
      const c10::AliasInfo* alias = node.schema().arguments()[i].alias_info();
      if (alias && alias->isWrite()) continue;
      all_cast = cast(node.args[i], node, dtype) && all_cast;
    }
    if (all_cast && !chooses_dtype(node)) follow(node, dtype);
    return made_;
  }

 private:
  /// False if a floating tensor stays in another dtype.
  bool cast(Argument& arg, Node& reader, c10::ScalarType dtype) {
    if (arg.kind == Argument::Kind::list) {
      bool all = true;
      for (Argument& item : arg.items) all = cast(item, reader, dtype) && all;
      return all;
    }
    if (!arg.is_value()) return true;
    const c10::ScalarType from = dtype_of(*arg.value);
    if (!castable(from)) return !at::isFloatingType(from) && !at::isComplexType(from);
    const bool certain = known_.contains(arg.value) || arg.value->producer->kind() == Node::Kind::attribute;
    if (from == dtype && certain) return true;
    arg = Argument(cast_of(arg.value, reader, dtype));
    return true;
  }

  Value* cast_of(Value* value, Node& reader, c10::ScalarType dtype) {
    Value*& made = casts_[{value, dtype}];
    if (!made) made = insert_cast(value, &reader, reader.scope, dtype);
    return made;
  }

  Value* insert_cast(Value* value, Node* before, const std::string& scope, c10::ScalarType dtype) {
    Node* node = graph_.call("aten::to.dtype", {value, c10::IValue(static_cast<int64_t>(dtype))}, before,
                             value->name + "_cast");
    node->scope = scope;
    node->output()->meta = value->meta;
    if (node->output()->meta) node->output()->meta->dtype = dtype;
    known_[node->output()] = dtype;
    ++made_;
    return node->output();
  }

  void cast_output(Node& node, c10::ScalarType dtype) {
    Value* found = node.output();
    if (!castable(dtype_of(*found)) || dtype_of(*found) == dtype) return;
    const auto& nodes = graph_.nodes();
    auto next = std::find_if(nodes.begin(), nodes.end(), [&](const auto& n) { return n.get() == &node; });
    Value* made = insert_cast(found, std::next(next)->get(), node.scope, dtype);
    graph_.replace_uses(found, made, made->producer);
  }

  /// Its results are in the dtype of its inputs.
  void follow(Node& node, c10::ScalarType dtype) {
    const std::vector<Value*> reads = node.reads();
    const bool floating =
        std::any_of(reads.begin(), reads.end(), [&](const Value* v) { return castable(dtype_of(*v)); });
    if (!floating) return;
    for (const auto& output : node.outputs()) {
      if (!output->meta || !castable(output->meta->dtype)) continue;
      output->meta->dtype = dtype;
      known_[output.get()] = dtype;
    }
  }

  /// Says its result's dtype itself: a dtype argument that is given.
  static bool chooses_dtype(const Node& node) {
    for (size_t i = 0; i < node.args.size(); ++i) {
      if (node.schema().arguments()[i].name() == "dtype" && !node.args[i].is_none()) return true;
    }
    return false;
  }

  c10::ScalarType dtype_of(const Value& value) const {
    const auto known = known_.find(&value);
    if (known != known_.end()) return known->second;
    const at::Tensor attribute = graph_.attribute_tensor(&value);
    if (attribute.defined()) return attribute.scalar_type();
    return value.meta ? value.meta->dtype : c10::kFloat;
  }

  Graph& graph_;
  std::map<std::pair<Value*, c10::ScalarType>, Value*> casts_;
  std::map<const Value*, c10::ScalarType> known_;  ///< what the casts written so far make certain
  int made_ = 0;
};

bool is_cast(const Node& node) {
  return node.is("aten::to") || node.is("aten::_to_copy") || node.is("aten::type_as");
}

void store_variables(Graph& graph, Rules& rules) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, attribute] : graph.attributes()) {
    const DtypePolicy* policy = rules.find(graph::parent_path(name));
    at::Tensor tensor = attribute.tensor;
    if (!policy || attribute.kind == Attribute::Kind::constant || !castable(tensor.scalar_type()) ||
        tensor.scalar_type() == policy->variable) {
      continue;
    }
    if (tensor.requires_grad()) tensor.mutable_grad().reset();
    tensor.set_data(tensor.to(policy->variable));
  }
}

}  // namespace

std::span<const DtypePolicy> dtype_policies() {
  return kPolicies;
}

const DtypePolicy& find_dtype_policy(std::string_view name) {
  std::string known;
  for (const DtypePolicy& policy : kPolicies) {
    if (policy.name == name) return policy;
    known.append(known.empty() ? "" : ", ").append(policy.name);
  }
  fail("amp.find_dtype_policy", "expected one of ", known, ", got '", name, "'");
}

graph::PassReport apply_policy(graph::GraphModule& module, const std::vector<PolicyRule>& given) {
  Graph& graph = module.graph();
  Rules rules(given, paths_of(graph));
  store_variables(graph, rules);
  std::vector<Node*> calls;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::call && !node->train_only && !is_cast(*node)) calls.push_back(node.get());
  }
  Caster caster(graph);
  std::map<std::string, std::pair<std::string_view, int>> done;  // path -> policy, casts
  for (Node* node : calls) {
    const DtypePolicy* policy = rules.find(node->scope);
    if (!policy) continue;
    auto& [name, casts] = done[node->scope];
    name = policy->name;
    casts += caster.cast_inputs(*node, policy->compute);
  }
  module.recompile();
  graph::PassReport report{.pass = "apply_policy", .changes = {}, .near_misses = rules.unused()};
  for (const auto& [path, what] : done) {
    report.changes.push_back((path.empty() ? "the model itself" : path) + ": " + std::string(what.first) +
                             ", casts written: " + std::to_string(what.second));
  }
  return report;
}

}  // namespace ulp::amp
