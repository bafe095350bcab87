#include "ulp/graph/conditions.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <string_view>

#include "ulp/base/error.h"

namespace ulp::graph {

namespace {

constexpr std::string_view kCondition = " at capture";  // no name of a module has a space

bool holds_same(const at::Tensor& now, const at::Tensor& held) {
  if (now.sizes() != held.sizes()) return false;
  const at::Tensor wanted = held.to(now.options());  // to() of the module rounds what was held, too
  return (now.eq(wanted) | (now.ne(now) & wanted.ne(wanted))).all().item<bool>();
}

}  // namespace

std::string condition_of(const std::string& buffer) {
  return buffer + std::string(kCondition);
}

std::vector<Condition> conditions_of(const Graph& graph) {
  std::vector<Condition> conditions;
  for (const auto& [name, attribute] : graph.attributes()) {
    if (!name.ends_with(kCondition)) continue;
    const std::string buffer = name.substr(0, name.size() - kCondition.size());
    const Attribute* now = graph.find_attribute(buffer);
    if (now != nullptr && now->kind == Attribute::Kind::buffer)
      conditions.push_back({buffer, now->tensor, attribute.tensor});
  }
  return conditions;
}

void check_conditions(const std::vector<Condition>& conditions, const char* where) {
  const torch::NoGradGuard no_grad;
  for (const Condition& one : conditions) {
    if (holds_same(one.now, one.held)) continue;
    fail(where, "expected '", one.buffer,
         "' to hold the numbers that it held at capture, which decide what forward does, got others; capture "
         "the model again");
  }
}

void check_conditions(const Graph& graph, const char* where) {
  check_conditions(conditions_of(graph), where);
}

}  // namespace ulp::graph
