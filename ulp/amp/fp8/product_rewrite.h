// Helpers of passes that replace the products of a captured model's layers (linear layers, convolutions,
// products with a parameter) by products of another kind.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::amp {

/// Which layers are left as they are.
struct ProductSelection {
  bool first = false;                          ///< true: replace the first layer of the network, too
  bool last = false;                           ///< the last one, too
  std::vector<std::string> skip_modules = {};  ///< paths of modules; '*' is any run of characters
};

/// A layer as a rewrite sees it: y = x W^T + b, or the convolution.
struct ProductLayer {
  graph::Node* node =
      nullptr;       ///< aten::linear, conv1d, conv2d, or a product of two matrices whose second is stored
  std::string path;  ///< of its module, or its own name
  graph::Value* input = nullptr;
  graph::Value* weight = nullptr;  ///< [out, in, ...]
  graph::Argument bias = {};       ///< may be none
  bool convolution = false;
};

/// The other kind of product.
struct ProductRewrite {
  const char* where;  ///< of errors: "amp.to_fp8"
  const char* pass;   ///< name of the report
  const char* done;   ///< follows the layer in the report: "computes in fp8"
  /// Why a layer stays as it is; empty: it does not. Nothing is refused without it.
  std::function<std::string(const graph::Graph&, const ProductLayer&)> refusal = {};
  /// Turns layer.node into another call.
  std::function<void(graph::Graph&, const ProductLayer&)> rewrite = {};
  /// Paths of modules that are rewritten in another way; '*' is any run of characters.
  std::vector<std::string> overrides = {};
};

/// A copy of the captured model in canonical form whose layers are rewritten; its parameters and buffers are the captured
/// model's own, so that training one trains the other. The mode is kept. Throws ulp::Error for null, a pattern that
/// matches no module, and a model of which no layer is rewritten. `report` (may be null) receives what was rewritten, and
/// what not and why.
ULP_API std::shared_ptr<graph::GraphModule> rewrite_products(
    const std::shared_ptr<graph::GraphModule>& captured, const ProductSelection& selection,
    const ProductRewrite& how, graph::PassReport* report = nullptr);

}  // namespace ulp::amp
