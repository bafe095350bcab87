#include "ulp/lower/lower.h"

#include "ulp/base/error.h"
#include "ulp/graph/conditions.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lower/dynamic_shapes.h"
#include "ulp/lower/example_sizes.h"
#include "ulp/lower/incremental_decoding.h"
#include "ulp/lower/lowerer.h"
#include "ulp/lower/prepare_graph.h"
#include "ulp/lower/shapes.h"

namespace ulp {
namespace lowering {
namespace {

runtime::Plan lower_plain(graph::Graph& graph, const LowerOptions& options, graph::PassReport& lines,
                          KnownWindows& windows) {
  lines = {.pass = "lower", .changes = {}, .near_misses = {}};
  prepare_graph(graph, lines.parts, windows);
  Lowered lowered = lower_prepared(graph, options, lines);
  if (!lowered.refusals.empty()) fail_with(lowered.refusals);
  return std::move(lowered.plan);
}

runtime::Plan lower_graph(graph::Graph& graph, const LowerOptions& options, graph::PassReport* report) {
  graph::PassReport unread;
  graph::PassReport& lines = report ? *report : unread;
  if (!options.continued.empty()) mark_positions(graph, options.continued);
  KnownWindows windows;  // the largest sizes come first
  if (graph.free.empty()) return lower_plain(graph, options, lines, windows);
  runtime::Plan plan =
      lower_free(graph, [&](graph::Graph& fixed) { return lower_plain(fixed, options, lines, windows); });
  if (!options.continued.empty()) keep_keys(plan, options.continued);
  plan.verify();
  if (!options.continued.empty()) check_continued(plan);
  return plan;
}

}  // namespace
}  // namespace lowering

runtime::Plan lower(graph::GraphModule& model, const LowerOptions& options, graph::PassReport* report) {
  graph::check_conditions(model.graph(), "lower.lower");
  const std::shared_ptr<graph::Graph> copy = model.graph().clone();
  return lowering::lower_graph(*copy, options, report);
}

runtime::Plan lower(const std::shared_ptr<graph::GraphModule>& model, const std::vector<at::Tensor>& examples,
                    const LowerOptions& options, graph::PassReport* report) {
  if (model == nullptr) fail("lower.lower", "expected a model, got null");
  graph::check_conditions(model->graph(), "lower.lower");
  const std::shared_ptr<graph::Graph> copy = model->graph().clone();
  if (!options.continued.empty())
    fail("lower.lower", "expected no examples with LowerOptions::continued, which wants a free dimension");
  copy->fix_free(lowering::example_sizes(*copy, examples, "lower.lower"));
  lowering::set_input_shapes(*copy, examples);
  return lowering::lower_graph(*copy, options, report);
}

}  // namespace ulp
