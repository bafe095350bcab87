#include "ulp/exchange/pt2/straight_numbers.h"

#include <algorithm>
#include <set>

#include "ulp/base/error.h"
#include "ulp/exchange/pt2/numbers.h"
#include "ulp/exchange/pt2/where.h"

namespace ulp::exchange::pt2 {

namespace {

/// Names of numbers in an argument, however deep.
void add_names(const Json& json, std::set<std::string>& names) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      if (key == "as_name" && value.is_string()) names.insert(value.get<std::string>());
      add_names(value, names);
    }
  } else if (json.is_array()) {
    for (const Json& one : json) add_names(one, names);
  }
}

std::set<std::string> names_in(const ProgramNode& node) {
  std::set<std::string> names;
  for (const auto& [name, argument] : node.inputs) add_names(argument.value, names);
  return names;
}

bool is_read(const ProgramNode& node, const std::set<std::string>& needed) {
  std::set<std::string> made;
  for (const ProgramArgument& output : node.outputs) add_names(output.value, made);
  return std::ranges::any_of(made, [&](const std::string& name) { return needed.contains(name); });
}

/// max(1, n) is n.
bool is_at_least_one(const ProgramNode& node) {
  return node.target == "torch.sym_max" && std::ranges::any_of(node.inputs, [](const auto& input) {
           const Json& value = input.second.value;
           const Json& number = value.is_object() && value.contains("as_int") ? value.at("as_int") : value;
           return number.is_number_integer() && number.template get<int64_t>() <= 1;
         });
}

bool bends(const ProgramNode& node) {
  static const std::set<std::string> kBent = {"mod", "sym_max", "sym_min", "sym_ite", "eq",
                                              "ne",  "lt",      "le",      "gt",      "ge"};
  return kBent.contains(node.target.substr(node.target.rfind('.') + 1)) && !is_at_least_one(node) &&
         !names_in(node).empty();
}

}  // namespace

void check_straight_numbers(const ProgramGraph& graph) {
  std::set<std::string> needed;
  for (const ProgramArgument& output : graph.outputs) add_names(output.value, needed);
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (is_check(node->target)) continue;
    const bool number = is_number_function(node->target);
    if (number && !is_read(*node, needed)) continue;
    if (number && bends(*node))
      fail_file(kImportPt2Where, node->label(),
                ": expected a number that follows the sizes of the inputs by a polynomial; export the "
                "program with a fixed size");
    needed.merge(names_in(*node));
  }
}

}  // namespace ulp::exchange::pt2
