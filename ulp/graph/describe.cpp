#include "ulp/graph/describe.h"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <vector>

namespace ulp::graph {
namespace {

std::string kind_of(const Node& node) {
  switch (node.kind()) {
    case Node::Kind::input:
      return "input";
    case Node::Kind::attribute:
      return "attribute";
    case Node::Kind::module:
      return "module '" + node.target() + "'";
    case Node::Kind::output:
      return "output";
    default:
      return node.target();
  }
}

bool has_weight_argument(const Node& node) {
  if (node.kind() != Node::Kind::call) return false;
  const auto& arguments = node.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const auto& arg) { return arg.name() == "weight"; });
}

}  // namespace

bool from_attributes(const Node& node) {
  if (node.kind() == Node::Kind::attribute) return true;
  if (node.kind() != Node::Kind::call) return false;
  const std::vector<Value*> reads = node.reads();
  return !reads.empty() &&
         std::all_of(reads.begin(), reads.end(), [](Value* v) { return from_attributes(*v->producer); });
}

std::string label(const Node& node) {
  if (node.scope.empty()) return node.name();
  const std::vector<Value*> reads = node.reads();
  const bool owns = has_weight_argument(node) || std::any_of(reads.begin(), reads.end(), [](Value* v) {
                      return from_attributes(*v->producer);
                    });
  return owns ? node.scope : node.name();
}

ErrorPlace error_place(const Node& node) {
  const bool has_op = node.kind() == Node::Kind::call || node.kind() == Node::Kind::module;
  return {.op = has_op ? node.target() : "", .node = node.name(), .module = node.scope};
}

std::string describe(const Node& node) {
  return kind_of(node) + " '" + node.name() + "'" + (node.scope.empty() ? "" : " in " + node.scope);
}

}  // namespace ulp::graph
