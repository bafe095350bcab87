#include "ulp/quant/skip_patterns.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/quant/recipe.h"

namespace ulp::quant {

void check_skip_patterns(const char* where, const graph::Graph& graph,
                         const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const auto in_pattern = [&](const auto& node) { return matches_module(pattern, node->scope); };
    if (std::ranges::none_of(graph.nodes(), in_pattern)) {
      fail(where, "expected skip_modules to name modules of the model, got '", pattern, "'");
    }
  }
}

bool is_skipped(const graph::Node& node, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns,
                             [&](const auto& pattern) { return matches_module(pattern, node.scope); });
}

}  // namespace ulp::quant
