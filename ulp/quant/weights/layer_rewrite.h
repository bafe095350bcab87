// What modes that need no data share: a copy of the model whose layers a function rewrites one by one.
// Internal.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::quant {

struct LayerRewrite {
  const char* where;                      ///< of errors
  const char* pass;                       ///< name of the report
  const char* wanted;                     ///< "linear layer"
  std::string done;                       ///< follows the layer in the report: "reads weights of 4 bits"
  std::vector<std::string> ops;           ///< of the layers
  std::vector<std::string> skip_modules;  ///< left in float
  bool products = false;                  ///< products with stored matrices [in, out] are linear layers, too
  /// Why a layer stays in float; empty: it does not.
  std::function<std::string(const graph::Graph&, const graph::Node&)> refusal;
  std::function<void(graph::Graph&, graph::Node*)> rewrite;
  /// More to say of a layer, behind `done`; may be empty.
  std::function<std::string(const graph::Node&)> remark = {};
};

/// A canonical copy of the graph in the form of inference, with batch norms folded; the captured model stays
/// as it is. Throws ulp::Error for null and a skip pattern that matches no module.
std::shared_ptr<graph::Graph> layers_graph(const std::shared_ptr<graph::GraphModule>& captured,
                                           const LayerRewrite& how);

/// The layers of such a graph, in order of execution; `refused` receives those that stay in float and why.
std::vector<graph::Node*> layers_of(const graph::Graph& graph, const LayerRewrite& how,
                                    std::vector<std::string>& refused);

/// Rewrites the layers of such a graph, which becomes the model.
std::shared_ptr<graph::GraphModule> rewrite_layers(const std::shared_ptr<graph::Graph>& graph,
                                                   const LayerRewrite& how, graph::PassReport* report);

/// A canonical copy in eval mode with batch norms folded and layers rewritten; the captured model stays as it
/// is. Throws ulp::Error for null, a skip pattern that matches no module, and a model with no layer to
/// rewrite. `report` (may be null) receives what was rewritten, and what not and why.
std::shared_ptr<graph::GraphModule> rewrite_layers(const std::shared_ptr<graph::GraphModule>& captured,
                                                   const LayerRewrite& how, graph::PassReport* report);

}  // namespace ulp::quant
