#include "ulp/amp/int8/to_int8.h"

#include <algorithm>

#include "ulp/amp/fp8/product_rewrite.h"
#include "ulp/amp/int8/int8_layers.h"
#include "ulp/amp/int8/int8_linear.h"

namespace ulp::amp {

namespace {

void write_int8(graph::Graph& graph, const ProductLayer& layer, const Int8LayerRecipe& recipe) {
  std::vector<graph::Argument> args = {layer.input, layer.weight, layer.bias};
  args.emplace_back(c10::IValue(enum_name(recipe.method)));
  for (const bool given : {recipe.output, recipe.grad_input, recipe.grad_weight, recipe.stochastic})
    args.emplace_back(c10::IValue(given));
  graph.retarget(layer.node, kInt8LinearOp, std::move(args));
}

}  // namespace

std::shared_ptr<graph::GraphModule> to_int8(const std::shared_ptr<graph::GraphModule>& captured,
                                            const Int8Recipe& recipe, graph::PassReport* report) {
  recipe.validate();
  const ProductRewrite how{
      .where = "amp.to_int8",
      .pass = "to_int8",
      .done = "computes in int8",
      .refusal = [](const graph::Graph&, const ProductLayer& layer) -> std::string {
        return layer.convolution ? "it is a convolution" : "";
      },
      .rewrite = [&](graph::Graph& graph,
                     const ProductLayer& layer) { write_int8(graph, layer, recipe.layers); }};
  return rewrite_products(captured, {recipe.first, recipe.last, recipe.skip_modules}, how, report);
}

bool has_int8_layers(const torch::nn::Module& model) {
  if (const auto* captured = dynamic_cast<const graph::GraphModule*>(&model)) {
    const auto is_int8 = [](const auto& node) { return node->is(kInt8LinearOp); };
    return std::ranges::any_of(captured->graph().nodes(), is_int8);
  }
  const auto modules = model.modules();
  return std::ranges::any_of(modules, [](const auto& module) {
    return dynamic_cast<const Int8LinearImpl*>(module.get()) != nullptr;
  });
}

}  // namespace ulp::amp
