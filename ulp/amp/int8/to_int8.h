// int8 training for captured models: linear layers become calls of ulp::int8_linear (int8_linear.h).
//
//   auto captured = ulp::capture(model, {tokens});
//   auto int8 = ulp::amp::to_int8(captured, ulp::amp::Int8Recipe::named("int8:rowwise"), &report);
//   for (...) {
//     { ulp::amp::Autocast bf16(torch::kCPU, torch::kBFloat16); loss = criterion(int8->forward(x), y); }
//     loss.backward();
//     optimizer.step();
//   }
//
// Parameters are shared with the captured model, which goes on computing in its own way and is what is lowered or
// saved.
#pragma once

#include <memory>

#include "ulp/amp/int8/int8_recipe.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::amp {

/// A copy whose linear layers and products with a stored matrix compute as the recipe says; convolutions stay as they
/// are. Throws ulp::Error for a bad recipe, and as rewrite_products(). `report` receives what was replaced, and what
/// not and why.
ULP_API std::shared_ptr<graph::GraphModule> to_int8(const std::shared_ptr<graph::GraphModule>& captured,
                                                    const Int8Recipe& recipe,
                                                    graph::PassReport* report = nullptr);

/// True for a captured model with int8 layers, and for one of Int8Linear.
ULP_API bool has_int8_layers(const torch::nn::Module& model);

}  // namespace ulp::amp
