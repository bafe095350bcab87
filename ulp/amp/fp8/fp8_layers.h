// Layers that compute in fp8, for models of one's own.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <optional>
#include <string>
#include <utility>

#include "ulp/amp/fp8/fp8_recipe.h"
#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// The part of an fp8 layer that is no parameter: a recipe and, with delayed scaling, buffers.
class ULP_API Fp8Layer {
 public:
  virtual ~Fp8Layer() = default;
  /// Its own recipe, or nothing: the guards' (Fp8Autocast).
  const std::optional<Fp8LayerRecipe>& own_recipe() const { return own_; }
  /// The recipe that its buffers belong to: its own, or that of the last guard that it ran under.
  const std::optional<Fp8LayerRecipe>& used_recipe() const { return used_; }
  /// The buffers of a module that is such a layer, as they are now.
  static Fp8State state_of(const torch::nn::Module& module);
  /// The name of the layer in reports: its path in the model.
  const std::string& path() const { return path_; }
  void set_path(std::string path) { path_ = std::move(path); }

 protected:
  Fp8Layer(torch::nn::Module& module, std::optional<Fp8LayerRecipe> recipe);
  /// The recipe to compute with now; nothing: not in fp8. Buffers are made when they are first needed.
  std::optional<Fp8LayerRecipe> recipe_now(torch::nn::Module& module);

 private:
  void use(torch::nn::Module& module, const Fp8LayerRecipe& recipe);
  std::optional<Fp8LayerRecipe> own_, used_;
  std::string path_;
};

/// torch::nn::Linear with its products in fp8. With a recipe it is always in fp8 (but for Fp8Autocast(false)); without
/// one it is where an Fp8Autocast with a recipe is around. With delayed scaling call update_fp8() once a step. Buffers of
/// a layer without a recipe of its own are made in the first forward under a guard: run one before loading a state.
class ULP_API Fp8LinearImpl : public torch::nn::LinearImpl, public Fp8Layer {
 public:
  explicit Fp8LinearImpl(const torch::nn::LinearOptions& options,
                         std::optional<Fp8LayerRecipe> recipe = std::nullopt);
  Fp8LinearImpl(int64_t in_features, int64_t out_features,
                std::optional<Fp8LayerRecipe> recipe = std::nullopt)
      : Fp8LinearImpl(torch::nn::LinearOptions(in_features, out_features), std::move(recipe)) {}
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(Fp8Linear);

/// torch::nn::Conv2d in the same way. Paddings are numbers, of zeros.
class ULP_API Fp8Conv2dImpl : public torch::nn::Conv2dImpl, public Fp8Layer {
 public:
  explicit Fp8Conv2dImpl(const torch::nn::Conv2dOptions& options,
                         std::optional<Fp8LayerRecipe> recipe = std::nullopt);
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(Fp8Conv2d);

}  // namespace ulp::amp
