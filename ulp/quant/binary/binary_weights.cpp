#include "ulp/quant/binary/binary_weights.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/binary/layers.h"
#include "ulp/quant/binary/write_signs.h"

namespace ulp::quant {
namespace {

bool has_latent_weight(const torch::nn::Module& module) {
  if (const auto* conv = dynamic_cast<const BinaryConv2dImpl*>(&module)) return !conv->binary().ternary;
  const auto* linear = dynamic_cast<const BinaryLinearImpl*>(&module);
  return linear != nullptr && !linear->binary().ternary;
}

}  // namespace

std::vector<std::string> latent_weights(const torch::nn::Module& model) {
  if (const auto* captured = dynamic_cast<const graph::GraphModule*>(&model))
    return latent_attributes(captured->graph());
  std::vector<std::string> names;
  if (has_latent_weight(model)) names.emplace_back("weight");
  for (const auto& item : model.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    const auto* captured = dynamic_cast<const graph::GraphModule*>(item.value().get());
    if (has_latent_weight(*item.value())) names.push_back(item.key() + ".weight");
    if (captured == nullptr) continue;
    for (const std::string& name : latent_attributes(captured->graph()))
      names.push_back(item.key() + "." + name);
  }
  return names;
}

void clip_latent_weights(torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  const std::vector<std::string> names = latent_weights(model);
  if (names.empty()) return;
  const auto parameters = model.named_parameters();
  for (const std::string& name : names) {
    if (const at::Tensor* weight = parameters.find(name)) at::Tensor(*weight).clamp_(-1, 1);
  }
}

std::shared_ptr<graph::GraphModule> pack_binary_weights(const std::shared_ptr<graph::GraphModule>& captured) {
  if (!captured) fail("quant.pack_binary_weights", "expected a captured model, got null");
  const std::shared_ptr<graph::Graph> graph = captured->graph().clone();
  graph::strip_training(*graph);
  write_signs(*graph);
  auto packed = std::make_shared<graph::GraphModule>(graph);
  packed->eval();
  return packed;
}

}  // namespace ulp::quant
