#include "ulp/quant/analysis/sensitivity.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/quant/observers/observer.h"
#include "ulp/quant/static/annotation.h"
#include "ulp/quant/static/convert_graph.h"

namespace ulp::quant {
namespace {

using graph::Graph;
using graph::GraphModule;
using graph::Value;

/// The parameters of values that take those of another one: alone, a layer behind them needs them itself.
/// Those of observed values stay with their observers, which convert_graph() asks, and checks.
KnownQParams shared_params(const Annotation& placement, const Observers& observers) {
  std::unordered_map<std::string, QParams> all;
  for (const Value* value : placement.observed) {
    const Observer& observer = *observers.at(observer_name(value->name));
    if (observer.seen()) all.emplace(value->name, observer.qparams());
  }
  KnownQParams known;
  for (const auto& [value, origin] : placement.sharing) {
    const auto found = all.find(origin->name);
    if (found == all.end()) continue;
    const QParams params = found->second;
    all.emplace(value->name, params);
    known.values.emplace(value->name, params);
  }
  return known;
}

at::Tensor result_of(GraphModule& model, const std::vector<at::Tensor>& inputs) {
  const at::NoGradGuard no_grad;
  return model.forward_all(inputs).at(0);
}

/// The recipe with every layer but one left out.
Recipe only(const Recipe& recipe, const Annotation& placement, const Chain& one) {
  Recipe alone = recipe;
  for (const Chain& chain : placement.chains) {
    if (chain.op == one.op) continue;
    alone.skip_values.push_back(chain.op->name());
    if (chain.add) alone.skip_values.push_back(chain.add->name());  // or the layer would take it
  }
  return alone;
}

}  // namespace

std::vector<std::string> Sensitivity::worst(int64_t n) const {
  std::vector<std::string> values;
  for (const LayerSensitivity& layer : layers) {
    if (static_cast<int64_t>(values.size()) < n) values.push_back(layer.value);
  }
  return values;
}

Sensitivity sensitivity(const std::shared_ptr<PreparedModule>& calibrated,
                        const std::vector<at::Tensor>& inputs, const SensitivityOptions& options) {
  if (!calibrated) fail("quant.sensitivity", "expected a calibrated model, got null");
  const std::shared_ptr<Graph> graph = calibrated->graph().clone();
  const Observers observers = take_observers(*graph);
  const Annotation placement = annotate(*graph, calibrated->recipe());
  const KnownQParams known = shared_params(placement, observers);
  std::vector<const Chain*> layers;
  for (const Chain& chain : placement.chains) {
    if (has_weight(*chain.op)) layers.push_back(&chain);
  }
  GraphModule exact(graph);
  exact.eval();
  Sensitivity result;
  if (options.score) result.float_score = options.score(exact);
  const at::Tensor expected = result_of(exact, inputs);
  for (const Chain* chain : layers) {
    graph::PassReport report;
    const auto alone = convert_graph(calibrated->graph().clone(),
                                     only(calibrated->recipe(), placement, *chain), known, report);
    LayerSensitivity layer{.layer = chain->describe(),
                           .value = chain->op->name(),
                           .error = quantization_error(expected, result_of(*alone, inputs)),
                           .score = {}};
    if (options.score) layer.score = options.score(*alone);
    result.layers.push_back(std::move(layer));
    if (options.progress) {
      options.progress(static_cast<int64_t>(result.layers.size()), static_cast<int64_t>(layers.size()));
    }
  }
  std::stable_sort(result.layers.begin(), result.layers.end(),
                   [](const auto& a, const auto& b) { return a.error.sqnr_db < b.error.sqnr_db; });
  return result;
}

}  // namespace ulp::quant
