#include "ulp/quant/dynamic.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/quant/layer_rewrite.h"
#include "ulp/quant/observer.h"
#include "ulp/quant/ops.h"
#include "ulp/quant/recipe.h"

namespace ulp::quant {
namespace {

using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

constexpr const char* kWhere = "quant.quantize_dynamic";
constexpr int64_t kMaxIn = int64_t{1} << 16;  // more products could overflow an int32 sum

/// Why a linear layer stays in float; empty: it does not.
std::string refusal(const Graph& graph, const Node& layer) {
  const at::Tensor weight = graph.attribute_tensor(layer.arg("weight").value);
  if (!weight.defined() || weight.dim() != 2) return "its weight is computed";
  if (weight.size(1) > kMaxIn) return "more than 65536 input features";
  return "";
}

/// Stores the weight's codes and scales beside it, once for all layers that share it.
void quantize_layer(Graph& graph, Node* layer, bool per_tensor) {
  const at::NoGradGuard no_grad;
  Value* weight = layer->arg("weight").value;
  const std::string name = weight->producer->target();
  if (graph.find_attribute(name + ".int8") == nullptr) {
    const auto observer = make_observer(Recipe::x86_int8().weight, name);
    const at::Tensor values = graph.attribute_tensor(weight).detach();
    observer->forward(values);
    if (observer->nan_count() + observer->inf_count() > 0) {
      fail(kWhere, "expected finite weights, got ", observer->nan_count(), " NaN and ", observer->inf_count(),
           " infinite values in '", name, "'");
    }
    const QParams params = observer->qparams();
    graph.set_attribute(name + ".int8", {Attribute::Kind::buffer, quantize(values, params)});
    graph.set_attribute(name + ".scale", {Attribute::Kind::buffer, params.scale});
  }
  const graph::Argument x = layer->arg("input"), bias = layer->arg("bias");
  graph.retarget(
      layer, "ulp::linear_dynamic",
      {x, graph.attribute(name + ".int8"), graph.attribute(name + ".scale"), bias, c10::IValue(per_tensor)});
}

}  // namespace

std::shared_ptr<graph::GraphModule> quantize_dynamic(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const DynamicOptions& options,
                                                     graph::PassReport* report) {
  return rewrite_layers(
      captured,
      {.where = kWhere,
       .pass = "quantize_dynamic",
       .wanted = "linear layer",
       .done = "quantizes its input as it runs",
       .ops = {"aten::linear"},
       .skip_modules = options.skip_modules,
       .refusal = refusal,
       .rewrite = [&](Graph& graph, Node* layer) { quantize_layer(graph, layer, options.per_tensor); }},
      report);
}

}  // namespace ulp::quant
