// Finds the fp8 layers of a module: calls of the ops in captured graphs, and Fp8Linear and Fp8Conv2d.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "ulp/amp/fp8/fp8_recipe.h"
#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// One layer.
struct Fp8LayerOf {
  std::string name;  ///< path of its module
  Fp8LayerRecipe recipe;
  Fp8State state;
};

/// Every layer with the state it has, in order, those that share buffers once. Layers without a recipe of their own
/// are not among them until a guard gave them one (Fp8Autocast).
ULP_API std::vector<Fp8LayerOf> fp8_layers_of(const torch::nn::Module& model);

}  // namespace ulp::amp
