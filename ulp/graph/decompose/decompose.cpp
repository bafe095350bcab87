#include "ulp/graph/decompose/decompose.h"

#include <torch/utils.h>

#include <algorithm>
#include <vector>

#include "ulp/graph/decompose/complex.h"
#include "ulp/graph/decompose/table.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/passes/fixed_tensor.h"

namespace ulp::graph {

// The files that have a table, decomposed_<name>().
#define ULP_DECOMPOSED(X) \
  X(functions)            \
  X(orders)               \
  X(moves)                \
  X(indices)              \
  X(products)             \
  X(windows)

#define ULP_DECLARE(name) DecomposeTable decomposed_##name();
ULP_DECOMPOSED(ULP_DECLARE)
#undef ULP_DECLARE

namespace {

const std::vector<DecomposeRow>& decompose_rows() {
  static const std::vector<DecomposeRow> all = [] {
    std::vector<DecomposeRow> rows;
#define ULP_GATHER(name) \
  for (const DecomposeRow& row : decomposed_##name()) rows.push_back(row);
    ULP_DECOMPOSED(ULP_GATHER)
#undef ULP_GATHER
#undef ULP_DECOMPOSED
    return rows;
  }();
  return all;
}

/// Ops of which everybody has a part: nobody the places of the largest elements, nor stored places of
/// several dimensions.
bool is_partly_had(const Node& node) {
  return node.op().find("max_pool") != std::string_view::npos || node.is("aten::index.Tensor");
}

bool has_known_sizes(const Node& node) {
  return std::ranges::all_of(node.outputs(), [](const auto& value) { return value->meta.has_value(); });
}

}  // namespace

at::Tensor stored_operand(Formula& f, const Argument& argument) {
  if (!argument.is_value()) throw CannotWrite{"expected a tensor"};
  const at::Tensor stored = fixed_tensor(f.graph(), *argument.value);
  if (!stored.defined())
    throw CannotWrite{"expected '" + argument.value->name +
                      "' to be constant, and to follow no buffer that forward writes"};
  return stored;
}

at::Tensor stored_operand(Formula& f, const char* argument) {
  return stored_operand(f, f.node().arg(argument));
}

PassReport decompose(Graph& graph, const std::function<bool(const Node&)>& wanted) {
  const at::NoGradGuard no_grad;
  PassReport report = split_complex(graph);
  report.pass = "decompose";
  std::vector<Node*> calls;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::call && !node->train_only && !node->outputs().empty())
      calls.push_back(node.get());
  }
  for (Node* node : calls) {
    const auto row =
        std::ranges::find_if(decompose_rows(), [&](const DecomposeRow& one) { return node->is(one.op); });
    if (row == decompose_rows().end() || !has_known_sizes(*node)) continue;
    if (!wanted(*node) && !is_partly_had(*node)) continue;
    const std::string title = label(*node) + " (" + node->target() + ")";
    if (node->autocast && node->autocast->enabled) {
      report.near_misses.push_back(title +
                                   " not written in core ops: it is under autocast of the model's own");
      continue;
    }
    Formula write(graph, *node, node->name());
    try {
      row->write(write);
      if (write.done()) report.changes.push_back(title + " written in core ops");
    } catch (const CannotWrite& error) {
      report.near_misses.push_back(title + " not written in core ops: " + error.reason);
    }
  }
  if (!calls.empty()) graph.remove_dead(/*attributes=*/true);
  return report;
}

}  // namespace ulp::graph
