#include "ulp/amp/fp8/fp8_layers_of.h"

#include <algorithm>

#include "ulp/amp/autocast/wide_state.h"
#include "ulp/amp/fp8/fp8_layers.h"
#include "ulp/amp/fp8/fp8_ops.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::amp {

namespace {

class Finder {
 public:
  void visit(const torch::nn::Module& module, const std::string& path) {
    if (const auto* captured = dynamic_cast<const graph::GraphModule*>(&module)) {
      for (const auto& node : captured->graph().nodes()) {
        if (node->is(kFp8LinearOp) || node->is(kFp8ConvolutionOp)) add(captured->graph(), *node, path);
      }
    } else if (const auto* layer = dynamic_cast<const Fp8Layer*>(&module); layer && layer->used_recipe()) {
      add({path, *layer->used_recipe(), Fp8Layer::state_of(module)});
    }
  }
  std::vector<Fp8LayerOf> found;

 private:
  void add(const graph::Graph& graph, const graph::Node& node, const std::string& path) {
    const auto tensor = [&](const char* name) {
      const graph::Argument& arg = node.arg(name);
      return arg.is_value() ? graph.attribute_tensor(arg.value) : at::Tensor();
    };
    const std::string name = node.arg("name").literal.toStringRef();
    add({path.empty() ? name : path + '.' + name,
         Fp8LayerRecipe::from_text(node.arg("recipe").literal.toStringRef()),
         {tensor("scale"), tensor("amax_history")}});
  }
  void add(Fp8LayerOf layer) {
    const auto same = [&](const Fp8LayerOf& other) { return other.state.scale.is_same(layer.state.scale); };
    if (!layer.state.defined() || std::ranges::none_of(found, same)) found.push_back(std::move(layer));
  }
};

std::vector<at::Tensor> state_tensors(const torch::nn::Module& module) {
  std::vector<at::Tensor> tensors;
  for (const Fp8LayerOf& layer : fp8_layers_of(module)) {
    tensors.push_back(layer.state.scale);
    tensors.push_back(layer.state.amax_history);
  }
  return tensors;
}

constexpr WideState kFp8State{.tensors = state_tensors};
const Component<WideState>::Provider kFp8StateProvider(fp8_state, kFp8State);

}  // namespace

std::vector<Fp8LayerOf> fp8_layers_of(const torch::nn::Module& model) {
  Finder finder;
  finder.visit(model, "");
  for (const auto& item : model.named_modules(/*name_prefix=*/"", /*include_self=*/false))
    finder.visit(*item.value(), item.key());
  return std::move(finder.found);
}

}  // namespace ulp::amp
