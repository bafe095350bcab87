// Decides which ops of a graph are quantized and where: shared by prepare (observers) and convert (the
// nodes).
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/fusion/chain.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/static/quantizable.h"

namespace ulp::quant {

/// A quantized op with what is fused behind it (rule 3 in quantize.h): a layer, an add of its own, or
/// softmax, sigmoid, tanh.
using graph::Chain;

/// The whole decision. It depends only on the graph and the recipe, so convert finds what prepare found.
struct Annotation {
  std::vector<Chain> chains;            ///< in order of execution
  std::vector<graph::Value*> observed;  ///< values with parameters of their own, each once
  std::vector<std::pair<graph::Value*, graph::Value*>>
      sharing;  ///< value, value whose parameters it takes; in order
  graph::PassReport report;
};

/// For a graph in canonical form without observers. `untrained`: names of nodes that stay in float, for no
/// training has seen their values.
ULP_API Annotation annotate(const graph::Graph& graph, const Recipe& recipe,
                            const std::set<std::string>& untrained = {});

/// The op as a recipe names it.
OpName op_name(const graph::Node& node);
/// The op whose result a quantized value is: of a chain the first.
const graph::Node& producer_of(const graph::Value& value, const Annotation& placement);
/// The name of the submodule that observes the value.
std::string observer_name(const std::string& value);

/// The node before which the first reader of the value can be inserted.
graph::Node* first_reader_place(const graph::Graph& graph, const graph::Value* value);

}  // namespace ulp::quant
