// fp8 for captured models: the layers of a graph become calls of the fp8 operators (fp8_ops.h).
//
//   auto captured = ulp::capture(model, {x});
//   auto fp8 = ulp::amp::to_fp8(captured, ulp::amp::Fp8Recipe::named("fp8:delayed"), &report);
//   for (...) {
//     { ulp::amp::Autocast bf16(torch::kCPU, torch::kBFloat16); loss = criterion(fp8->forward(x), y); }
//     loss.backward();
//     ulp::amp::update_fp8(*fp8);     // once a step
//     optimizer.step();
//   }
//
// Parameters are shared with the captured model, which goes on computing in its own way and is what is lowered or saved.
#pragma once

#include <memory>

#include "ulp/amp/fp8/fp8_recipe.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::amp {

/// A copy whose linear layers, convolutions of 1 and 2 dimensions and products with a stored matrix compute as the recipe
/// says; buffers of delayed scaling are "<module>.fp8_scale" and "<module>.fp8_amax_history". Layers that are called
/// twice have one state. Throws ulp::Error for a bad recipe, and as rewrite_products(). `report` receives what was
/// replaced, and what not and why.
ULP_API std::shared_ptr<graph::GraphModule> to_fp8(const std::shared_ptr<graph::GraphModule>& captured,
                                                   const Fp8Recipe& recipe,
                                                   graph::PassReport* report = nullptr);

/// True for a model with fp8 layers: captured, or of Fp8Linear and Fp8Conv2d.
ULP_API bool has_fp8_layers(const torch::nn::Module& model);

}  // namespace ulp::amp
