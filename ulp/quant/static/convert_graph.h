// Writing the quantize and dequantize nodes, whoever knows their parameters. Internal.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/observers/observer.h"
#include "ulp/quant/recipe.h"

namespace ulp::quant {

/// Parameters that no observer in the graph has to be asked for.
struct KnownQParams {
  std::unordered_map<std::string, QParams> values;   ///< by the name of the quantized value
  std::unordered_map<std::string, QParams> weights;  ///< by the name of the layer's node
  std::set<std::string> untrained;                   ///< as in annotate()
};

/// Observers by the name of their submodule; see observer_name().
using Observers = std::unordered_map<std::string, std::shared_ptr<Observer>>;

/// Takes the observers that prepare() put there out of the graph.
Observers take_observers(graph::Graph& graph);

/// Gives the graph the form that quantize.h documents and wraps it. Values without known parameters have an
/// observer in the graph; weights without them are observed here.
std::shared_ptr<graph::GraphModule> convert_graph(const std::shared_ptr<graph::Graph>& graph,
                                                  const Recipe& recipe, const KnownQParams& known,
                                                  graph::PassReport& report);

}  // namespace ulp::quant
