#include "ulp/graph/conditions.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <string_view>

#include "ulp/base/error.h"

namespace ulp::graph {

namespace {

/// What names end in; no name of a module has a space.
struct Ending {
  ReadIn modes;
  std::string_view text;
};
constexpr Ending kEndings[] = {{ReadIn::both, " at capture"},
                               {ReadIn::eval, " at capture in eval mode"},
                               {ReadIn::train, " at capture in train mode"}};

bool holds_same(const at::Tensor& now, const at::Tensor& held) {
  if (now.sizes() != held.sizes()) return false;
  const at::Tensor wanted = held.to(now.options());  // to() of the module rounds what was held, too
  return (now.eq(wanted) | (now.ne(now) & wanted.ne(wanted))).all().item<bool>();
}

}  // namespace

std::string condition_of(const std::string& buffer, ReadIn modes) {
  return buffer + std::string(kEndings[static_cast<size_t>(modes)].text);
}

std::vector<Condition> conditions_of(const Graph& graph) {
  std::vector<Condition> conditions;
  for (const auto& [name, attribute] : graph.attributes()) {
    for (const Ending& ending : kEndings) {
      if (!name.ends_with(ending.text)) continue;
      const std::string buffer = name.substr(0, name.size() - ending.text.size());
      const Attribute* now = graph.find_attribute(buffer);
      if (now != nullptr && now->kind == Attribute::Kind::buffer)
        conditions.push_back({buffer, now->tensor, attribute.tensor, ending.modes});
    }
  }
  return conditions;
}

void check_conditions(const std::vector<Condition>& conditions, bool training, const char* where) {
  const torch::NoGradGuard no_grad;
  for (const Condition& one : conditions) {
    if (!one.counts(training) || holds_same(one.now, one.held)) continue;
    const char* mode = one.modes == ReadIn::both ? "" : training ? " in train mode" : " in eval mode";
    fail(where, "expected '", one.buffer,
         "' to hold the numbers that it held at capture, which decide what forward does", mode,
         ", got others; capture the model again");
  }
}

void check_conditions(const Graph& graph, const char* where) {
  check_conditions(conditions_of(graph), /*training=*/false, where);
}

}  // namespace ulp::graph
