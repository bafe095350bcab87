#include "ulp/amp/fp8/to_fp8.h"

#include "ulp/amp/fp8/fp8_layers_of.h"
#include "ulp/amp/fp8/fp8_ops.h"
#include "ulp/amp/fp8/product_rewrite.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::amp {

namespace {

using graph::Argument;
using graph::Graph;

/// The buffer of this name, made where it is not there yet.
Argument buffer(Graph& graph, const std::string& name, const at::Tensor& fresh) {
  if (!fresh.defined()) return {};
  if (graph.find_attribute(name) == nullptr)
    graph.set_attribute(name, {graph::Attribute::Kind::buffer, fresh});
  return graph.attribute(name);
}

void write_fp8(Graph& graph, const ProductLayer& layer, const Fp8LayerRecipe& recipe) {
  const at::Device device = graph.attributes().front().second.tensor.device();
  const Fp8State fresh = Fp8State::make(recipe, device);
  std::vector<Argument> args = {layer.input, layer.weight, layer.bias};
  if (layer.convolution) {
    for (const char* name : {"stride", "padding", "dilation", "groups"})
      args.push_back(layer.node->arg(name));
  }
  args.push_back(buffer(graph, layer.path + '.' + kFp8ScaleName, fresh.scale));
  args.push_back(buffer(graph, layer.path + '.' + kFp8HistoryName, fresh.amax_history));
  args.emplace_back(c10::IValue(recipe.text()));
  args.emplace_back(c10::IValue(layer.path));
  graph.retarget(layer.node, layer.convolution ? kFp8ConvolutionOp : kFp8LinearOp, std::move(args));
}

std::vector<std::string> overridden_modules(const Fp8Recipe& recipe) {
  std::vector<std::string> paths;
  for (const Fp8Override& rule : recipe.overrides) paths.push_back(rule.module);
  return paths;
}

}  // namespace

std::shared_ptr<graph::GraphModule> to_fp8(const std::shared_ptr<graph::GraphModule>& captured,
                                           const Fp8Recipe& recipe, graph::PassReport* report) {
  recipe.validate();
  const ProductRewrite how{
      .where = "amp.to_fp8",
      .pass = "to_fp8",
      .done = "computes in fp8",
      .refusal =
          [&](const Graph&, const ProductLayer& layer) {
            if (!layer.convolution) return std::string();
            return fp8_convolution_obstacle(recipe.layers_of(layer.path),
                                            graph::integer(layer.node->arg("groups")).value_or(0));
          },
      .rewrite = [&](Graph& graph,
                     const ProductLayer& layer) { write_fp8(graph, layer, recipe.layers_of(layer.path)); },
      .overrides = overridden_modules(recipe)};
  return rewrite_products(captured, {recipe.first, recipe.last, recipe.skip_modules}, how, report);
}

bool has_fp8_layers(const torch::nn::Module& model) {
  return !fp8_layers_of(model).empty();
}

}  // namespace ulp::amp
