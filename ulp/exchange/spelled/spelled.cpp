#include "ulp/exchange/spelled/spelled.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ulp/exchange/arguments.h"

namespace ulp::exchange::spelled {

using graph::Node;
using V = Formula::V;

// The files that have a table, spelled_<name>().
#define ULP_SPELLED(X) \
  X(functions)         \
  X(quotients)         \
  X(norms)             \
  X(products)          \
  X(pieces)            \
  X(recurrent)         \
  X(loops)

#define ULP_DECLARE(name) SpelledTable spelled_##name();
ULP_SPELLED(ULP_DECLARE)
#undef ULP_DECLARE

namespace {

const std::vector<SpelledRow>& all_rows() {
  static const std::vector<SpelledRow> all = [] {
    std::vector<SpelledRow> rows;
#define ULP_GATHER(name) \
  for (const SpelledRow& row : spelled_##name()) rows.push_back(row);
    ULP_SPELLED(ULP_GATHER)
#undef ULP_GATHER
#undef ULP_SPELLED
    return rows;
  }();
  return all;
}

}  // namespace

/// With u = 1 + x rounded, log(u) x / (u - 1) has the rounding of u in both of its places.
V Formula::log1p(V x) {
  V u = add(x, 1), whole = mul(log(u), div(x, add(u, -1)));
  V far = where(compare("aten::eq", u, x), log(u), whole);  // infinity, too
  return where(compare("aten::eq", u, 1), x, far);
}

/// ELU is exp(x) - 1 below 0; above, exp(x) (1 - exp(-x)).
V Formula::expm1(V x) {
  V above = mul(exp(x), map("aten::elu", map("aten::neg", x)));
  return where(compare("aten::gt", x, 0.0), map("aten::neg", above), map("aten::elu", x));
}

V Formula::trunc(V x) {
  return mul(map("aten::sign", x), map("aten::floor", abs(x)));
}

void split_extremes(graph::Graph& graph) {
  std::vector<Node*> found;
  for (const auto& node : graph.nodes()) {
    const bool extreme = node->is("aten::max") || node->is("aten::min");
    if (extreme && node->outputs().size() == 2 && node->output(1)->meta &&
        !graph.users(node->output(1)).empty())
      found.push_back(node.get());
  }
  for (Node* node : found) {
    Speller spell(graph, *node);
    V places = spell.call(node->is("aten::max") ? "aten::argmax" : "aten::argmin",
                          {node->arg("self"), node->arg("dim"), node->arg("keepdim")}, at::kLong,
                          node->output(1)->meta->sizes);
    graph.replace_uses(node->output(1), places);
  }
  if (!found.empty()) graph.remove_dead();
}

void spell_out(graph::Graph& graph, const std::function<bool(const Node&)>& wanted) {
  std::vector<Node*> calls;
  for (const auto& node : graph.nodes()) {
    const bool runs = node->kind() == Node::Kind::call && !node->train_only && !node->outputs().empty();
    if (runs && node->output()->meta) calls.push_back(node.get());
  }
  for (Node* node : calls) {
    const auto row =
        std::ranges::find_if(all_rows(), [&](const SpelledRow& one) { return node->is(one.op); });
    if (row == all_rows().end()) continue;
    Speller spell(graph, *node);
    Formula write(spell);
    try {
      if (wanted(*node)) row->spell(write);
    } catch (const Refused&) {  // the writer says that there is no form
    } catch (const graph::CannotWrite&) {
    }
  }
  graph.remove_dead(/*attributes=*/true);
}

}  // namespace ulp::exchange::spelled
