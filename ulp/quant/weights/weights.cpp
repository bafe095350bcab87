#include "ulp/quant/weights/weights.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/quant/weights/layer_rewrite.h"
#include "ulp/quant/weights/rotated_first.h"
#include "ulp/quant/weights/round_to_nearest.h"
#include "ulp/quant/weights/weight_coder.h"

namespace ulp::quant {
namespace {

using graph::Graph;
using graph::Node;

constexpr const char* kQuantizeWeightsWhere = "quant.quantize_weights";

}  // namespace

std::shared_ptr<graph::GraphModule> quantize_weights(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const WeightOnlyRecipe& options,
                                                     graph::PassReport* report) {
  options.validate();
  if (options.search) fail(kQuantizeWeightsWhere, "expected calibration data for the search, got none");
  for (const WeightMethod method : {WeightMethod::gptq, WeightMethod::awq}) {
    if (options.takes(method))
      fail(kQuantizeWeightsWhere, "expected calibration data for the method ", enum_name(method),
           ", got none");
  }
  if (options.rotate) {
    return with_rotation(captured, options, report, [&](const auto& rotated, const auto& rest, auto* own) {
      return quantize_weights(rotated, rest, own);
    });
  }
  LayerRewrite how = weights_rewrite(options);
  const std::shared_ptr<Graph> graph = layers_graph(captured, how);
  std::vector<std::string> refused;
  const WeightRecipes recipes = recipes_of(layers_of(*graph, how, refused), options);
  const auto own = [&](const Node& layer) -> const WeightOnlyRecipe& {
    return recipes.at(layer.arg("weight").value);
  };
  const WeightOnlyRecipe* now = nullptr;
  WeightCoder coder(
      [&](const std::string& name, const at::Tensor& values) { return rounded_codes(name, values, *now); });
  how.remark = [&](const Node& layer) { return ' ' + std::to_string(own(layer).bits) + " bits"; };
  how.rewrite = [&](Graph& inside, Node* layer) {
    now = &own(*layer);
    coder.rewrite(inside, layer);
  };
  return rewrite_layers(graph, how, report);
}

}  // namespace ulp::quant
