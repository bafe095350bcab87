#include "ulp/prune/structured/rules/rules.h"

#include <map>

namespace ulp::prune {

RuleFunction find_rule(std::string_view op) {
  static const std::map<std::string_view, RuleFunction> table = [] {
    std::map<std::string_view, RuleFunction> made;
    for (const auto& family : {layer_rules(), norm_rules(), elementwise_rules(), reduce_rules(),
                               piece_rules(), move_rules(), view_rules(), sequence_rules()}) {
      for (const Rule& rule : family) made[rule.op] = rule.apply;
    }
    return made;
  }();
  const auto found = table.find(op);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace ulp::prune
