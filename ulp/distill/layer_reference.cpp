#include "ulp/distill/layer_reference.h"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/distill/attention_parts.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::distill {

namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

/// "layer2:input" as a name and what is asked of it.
struct Parts {
  std::string name, part;
};

Parts split(const std::string& place) {
  const size_t colon = place.rfind(':');
  if (colon == std::string::npos) return {place, ""};
  return {place.substr(0, colon), place.substr(colon + 1)};
}

void collect(const Argument& argument, std::vector<Value*>& found) {
  if (argument.is_value()) found.push_back(argument.value);
  for (const Argument& item : argument.items) collect(item, found);
}

/// The tensors of a result, of one with a form for each mode those that both have: the value of the mode.
std::vector<Value*> results_in_any_mode(Graph& graph, const Argument& result) {
  std::vector<Value*> results;
  if (result.kind != Argument::Kind::by_mode) {
    collect(result, results);
    return results;
  }
  std::vector<Value*> train;
  collect(result.items.at(0), results);
  collect(result.items.at(1), train);
  results.resize(std::min(results.size(), train.size()));
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == train[i]) continue;
    Node* node = graph.call("ulp::by_mode", {results[i], train[i], Argument::training_flag()});
    node->output()->meta = results[i]->meta;
    results[i] = node->output();
  }
  return results;
}

Value* find_output(Graph& graph, const std::string& part) {
  const std::vector<Value*> results = results_in_any_mode(graph, graph.output_node()->args.at(0));
  size_t index = 0;
  if (!part.empty()) {
    const bool digits =
        part.size() < 6 && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) fail(kFindPlaceWhere, "expected output:NUMBER, got 'output:", part, "'");
    index = std::stoul(part);
  }
  if (index >= results.size())
    fail(kFindPlaceWhere, "expected one of the ", results.size(),
         " tensors that the model returns, got number ", index);
  return results[index];
}

/// "a, b, c" and so on: the first of them, for messages.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 20;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMost ? text + ", ..." : text;
}

bool inside(const Node& node, const std::string& module) {
  return node.scope == module || (node.scope.starts_with(module) && node.scope[module.size()] == '.');
}

bool computes(const Node& node) {
  return (node.kind() == Node::Kind::call || node.kind() == Node::Kind::module) && !node.outputs().empty();
}

/// The calls of a module, in order.
std::vector<Node*> calls_of(const Graph& graph, const std::string& module) {
  std::vector<Node*> calls;
  for (const auto& node : graph.nodes()) {
    if (computes(*node) && inside(*node, module)) calls.push_back(node.get());
  }
  return calls;
}

/// A call that reads parameters, whose scope is what the parameters say.
bool owns_parameters(const Node& node) {
  return std::ranges::any_of(node.reads(),
                             [](const Value* value) { return graph::from_attributes(*value->producer); });
}

/// A call that gives what it reads in another form.
bool is_view(const Node& node) {
  if (node.kind() != Node::Kind::call) return false;
  const auto& returns = node.schema().returns();
  return returns.size() == 1 && returns[0].alias_info() != nullptr && !returns[0].alias_info()->isWrite();
}

/// The products and sums over positions that attentions are made of.
bool mixes(const Node& node) {
  return graph::is_any(node, {"aten::matmul", "aten::bmm", "aten::baddbmm", "aten::einsum", "aten::softmax",
                              "aten::scaled_dot_product_attention"});
}

/// A call whose result has the sizes of what it reads first, such as an activation.
bool keeps_sizes(const Node& node) {
  const std::vector<Value*> reads = node.reads();
  return !reads.empty() && node.outputs().size() == 1 && reads[0]->meta && node.output()->meta &&
         reads[0]->meta->sizes == node.output()->meta->sizes;
}

/// Whether a parameter is read by several calls, as in a module that is called more than once.
bool reads_a_parameter_twice(const Graph& graph, const std::vector<Node*>& calls) {
  std::vector<const Value*> seen;
  for (const Node* call : calls) {
    for (const Value* value : call->reads()) {
      if (value->producer->kind() != Node::Kind::attribute) continue;
      const graph::Attribute* attribute = graph.find_attribute(value->producer->target());
      if (attribute == nullptr || attribute->kind != graph::Attribute::Kind::parameter) continue;
      if (std::ranges::find(seen, value) != seen.end()) return true;
      seen.push_back(value);
    }
  }
  return false;
}

/// The calls of a module without those that follow its last layer or attention and give the result another
/// form, which are how others read it: a view, a pooling, a mean. Views that merge the heads of an attention
/// are its own.
std::vector<Node*> without_readers(const std::vector<Node*>& calls, const std::vector<Node*>& own) {
  const auto last = std::find_if(own.rbegin(), own.rend(),
                                 [](const Node* node) { return owns_parameters(*node) || mixes(*node); });
  if (last == own.rend()) return calls;
  std::vector<Node*> kept(calls.begin(), std::ranges::find(calls, *last) + 1);
  for (auto call = last.base(); call != own.end(); ++call) {
    if (!keeps_sizes(**call) && (!mixes(**last) || !is_view(**call))) break;
    kept.push_back(*call);
  }
  return kept;
}

/// With the views that merge the heads of an attention at the end, which stand outside of a module whose mask
/// is a tensor of its own.
std::vector<Node*> with_merged_heads(const Graph& graph, std::vector<Node*> calls) {
  if (calls.empty() || !mixes(*calls.back())) return calls;
  for (;;) {
    const std::vector<Node*> users = graph.users(calls.back()->output());
    if (users.size() != 1 || !is_view(*users[0])) return calls;
    calls.push_back(users[0]);
  }
}

/// What the calls of a module make and others read, in order. What is made of attributes alone is none of it.
std::vector<Value*> results_of(const Graph& graph, const std::vector<Node*>& calls) {
  std::vector<Value*> results;
  for (const Node* call : calls) {
    for (const auto& value : call->outputs()) {
      const bool read = std::ranges::any_of(graph.users(value.get()), [&](const Node* user) {
        return std::ranges::find(calls, user) == calls.end();
      });
      if (read) results.push_back(value.get());
    }
  }
  return results;
}

/// The first value that a module reads and does not make; of attributes only where there is no other.
Value* input_of(const std::vector<Node*>& calls) {
  for (const Node* call : calls) {
    for (Value* value : call->reads()) {
      const Node* producer = value->producer;
      if (producer->kind() == Node::Kind::attribute) continue;
      if (std::ranges::find(calls, producer) == calls.end()) return value;
    }
  }
  return nullptr;
}

/// Whether a call computes with these calls' values, and with `input`, alone.
bool reads_only(const Node& node, const std::vector<Node*>& calls, const Value* input) {
  return std::ranges::all_of(node.reads(), [&](const Value* value) {
    return value == input || std::ranges::find(calls, value->producer) != calls.end();
  });
}

/// With the sum at the end of a residual module and the activation of it, which stand outside where the
/// shortcut is the module's own input. A single layer has no such end.
std::vector<Node*> with_residual_sum(const Graph& graph, std::vector<Node*> calls, const Value* input) {
  if (std::ranges::count_if(calls, [](const Node* node) { return owns_parameters(*node); }) < 2) return calls;
  const auto follower = [&](const Value* value, const auto& fits) -> Node* {
    for (Node* user : graph.users(value)) {
      const bool own = std::ranges::find(calls, user) != calls.end();
      if (!own && user->kind() == Node::Kind::call && !owns_parameters(*user) && fits(*user)) return user;
    }
    return nullptr;
  };
  for (const Value* result : results_of(graph, calls)) {
    Node* sum = follower(result, [&](const Node& user) {
      return (user.is("aten::add") || user.is("aten::add_")) && user.reads().size() == 2 &&
             reads_only(user, calls, input);
    });
    if (sum == nullptr) continue;
    calls.push_back(sum);
    Node* activation = follower(sum->output(), [&](const Node& user) {
      return user.reads().size() == 1 && keeps_sizes(user) && !is_view(user);
    });
    if (activation != nullptr) calls.push_back(activation);
    return calls;
  }
  return calls;
}

/// The calls of a module whose calls with parameters stand together: with all between its first and its last,
/// which also read what was made outside (a mask), and without those that only read its result.
std::vector<Node*> as_one_run(const Graph& graph, const std::vector<Node*>& calls) {
  const auto first = std::ranges::find_if(calls, [](const Node* node) { return owns_parameters(*node); });
  if (first == calls.end() || reads_a_parameter_twice(graph, calls)) return calls;
  const auto last =
      std::find_if(calls.rbegin(), calls.rend(), [](const Node* node) { return owns_parameters(*node); });
  std::vector<Node*> run(calls.begin(), first);
  bool between = false;
  for (const auto& node : graph.nodes()) {
    between = between || node.get() == *first;
    if (between && computes(*node)) {
      const bool own = std::ranges::find(calls, node.get()) != calls.end();
      if (!own && (node->kind() == Node::Kind::module || owns_parameters(*node))) return calls;
      run.push_back(node.get());
    }
    if (node.get() == *last) break;
  }
  run.insert(run.end(), last.base(), calls.end());
  return with_residual_sum(graph, with_merged_heads(graph, without_readers(run, calls)), input_of(run));
}

/// The calls, and those without parameters that read them, which may stand outside of the module for what
/// else they read.
std::vector<Node*> with_readers(const Graph& graph, std::vector<Node*> calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    for (const auto& value : calls[i]->outputs()) {
      for (Node* user : graph.users(value.get())) {
        if (user->kind() == Node::Kind::call && !owns_parameters(*user) &&
            std::ranges::find(calls, user) == calls.end())
          calls.push_back(user);
      }
    }
  }
  return calls;
}

Node* find_node(const Graph& graph, const std::string& name) {
  for (const auto& node : graph.nodes()) {
    if (node->name() == name && !node->outputs().empty()) return node.get();
    for (const auto& value : node->outputs()) {
      if (value->name == name) return node.get();
    }
  }
  return nullptr;
}

Value* value_of(const Node& node, const std::string& name) {
  for (const auto& value : node.outputs()) {
    if (value->name == name) return value.get();
  }
  return node.output();
}

/// Names near one that is not there, for messages: the modules of the innermost module around it that the
/// graph has, or the calls of a graph without modules.
std::string near_names(const Graph& graph, const std::string& name) {
  std::string around = name;
  do {
    const size_t dot = around.rfind('.');
    around = dot == std::string::npos ? "" : around.substr(0, dot);
  } while (!around.empty() && calls_of(graph, around).empty());
  std::vector<std::string> modules, calls;
  const auto add = [](std::vector<std::string>& names, const std::string& one) {
    if (std::ranges::find(names, one) == names.end()) names.push_back(one);
  };
  for (const auto& node : graph.nodes()) {
    if (!computes(*node)) continue;
    add(calls, node->name());
    if (around.empty() ? node->scope.empty() : node->scope == around || !inside(*node, around)) continue;
    add(modules, node->scope.substr(0, node->scope.find('.', around.empty() ? 0 : around.size() + 1)));
  }
  if (modules.empty()) return "its calls are " + listed(calls);
  return (around.empty() ? "its outermost modules are " : "the modules in '" + around + "' are ") +
         listed(modules);
}

Value* sole_result(const Graph& graph, const std::vector<Node*>& calls, const std::string& name) {
  const std::vector<Value*> results = results_of(graph, as_one_run(graph, calls));
  if (results.size() == 1) return results[0];
  std::vector<std::string> names;
  for (const Value* value : results) names.push_back(value->name);
  if (results.empty()) fail(kFindPlaceWhere, "expected a module whose result is read, got '", name, "'");
  fail(kFindPlaceWhere, "expected a place with one value, got '", name, "', of which others read ",
       listed(names), ": name one of them, or the input of the module that follows ('NAME:input')");
}

}  // namespace

Value* find_layer_output(Graph& graph, const std::string& place) {
  const Parts parts = split(place);
  if (parts.name.empty() && !place.empty())
    fail(kFindPlaceWhere, "expected a name before ':', got '", place, "'");
  if (place.empty() || parts.name == "output") {
    if (graph.output_node() == nullptr) fail(kFindPlaceWhere, "expected a graph with an output, got none");
    return find_output(graph, parts.part);
  }
  const std::vector<Node*> calls = calls_of(graph, parts.name);
  Node* node = calls.empty() ? find_node(graph, parts.name) : nullptr;
  if (calls.empty() && node == nullptr) {
    fail(kFindPlaceWhere, "expected a module, node or value of the model, got '", parts.name, "'; ",
         near_names(graph, parts.name));
  }
  const std::vector<Node*> own = node == nullptr ? calls : std::vector<Node*>{node};
  if (parts.part.empty())
    return node == nullptr ? sole_result(graph, calls, parts.name) : value_of(*node, parts.name);
  if (parts.part == "input") {
    if (Value* input = input_of(own)) return input;
    fail(kFindPlaceWhere, "expected a module that reads a value, got '", parts.name, "'");
  }
  const auto role = from_word<AttentionRole>(parts.part);
  if (!role) {
    constexpr auto kRoles = enum_names<AttentionRole>();
    fail(kFindPlaceWhere, "expected 'input', ", one_of(kRoles), " behind ':', got '", parts.part, "'");
  }
  return find_attention(graph, node == nullptr ? with_readers(graph, as_one_run(graph, own)) : own, *role,
                        parts.name);
}

}  // namespace ulp::distill
