#include "ulp/lower/lower.h"

#include "ulp/graph/graph_module.h"
#include "ulp/lower/lowerer.h"
#include "ulp/lower/prepare_graph.h"
#include "ulp/lower/shapes.h"

namespace ulp {
namespace lowering {
namespace {

runtime::Plan lower_graph(graph::Graph& graph, const LowerOptions& options, graph::PassReport* report) {
  graph::PassReport unread;
  graph::PassReport& lines = report ? *report : unread;
  lines = {.pass = "lower", .changes = {}, .near_misses = {}};
  prepare_graph(graph, lines.parts);
  Lowered lowered = lower_prepared(graph, options, lines);
  if (!lowered.refusals.empty()) fail_with(lowered.refusals);
  return std::move(lowered.plan);
}

}  // namespace
}  // namespace lowering

runtime::Plan lower(graph::GraphModule& model, const LowerOptions& options, graph::PassReport* report) {
  const std::shared_ptr<graph::Graph> copy = model.graph().clone();
  return lowering::lower_graph(*copy, options, report);
}

runtime::Plan lower(const std::shared_ptr<graph::GraphModule>& model, const std::vector<at::Tensor>& examples,
                    const LowerOptions& options, graph::PassReport* report) {
  if (model == nullptr) fail("lower.lower", "expected a model, got null");
  const std::shared_ptr<graph::Graph> copy = model->graph().clone();
  lowering::set_input_shapes(*copy, examples);
  return lowering::lower_graph(*copy, options, report);
}

}  // namespace ulp
