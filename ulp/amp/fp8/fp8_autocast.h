// A guard that turns fp8 on and off around parts of a program.
#pragma once

#include <memory>
#include <optional>

#include "ulp/amp/fp8/fp8_recipe.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// While it lives, fp8 layers on this thread compute in fp8 or, where it is not enabled, as their plain kin do. Layers
/// that were made without a recipe (Fp8Linear, Fp8Conv2d) take the guard's, and are plain outside of guards; all others,
/// those of captured models too, keep their own recipe and are in fp8 unless a guard says otherwise.
///
///   ulp::amp::Fp8Autocast fp8(true, ulp::amp::Fp8Recipe::named("fp8:current").layers);
///   auto y = model->forward(x);
///   {
///     ulp::amp::Fp8Autocast plain(false);   // local opt-out
///     z = head->forward(y);
///   }
///
/// Guards nest: the innermost decides, and when it ends things are as they were before, after an exception too. An inner
/// guard that is enabled without a recipe has the outer one's. What was computed in fp8 has its backward pass in fp8,
/// whatever the guards around backward() say. Destroy a guard on the thread that made it.
class ULP_API Fp8Autocast {
 public:
  explicit Fp8Autocast(bool enabled = true, std::optional<Fp8LayerRecipe> recipe = std::nullopt);
  ~Fp8Autocast();
  Fp8Autocast(const Fp8Autocast&) = delete;
  Fp8Autocast& operator=(const Fp8Autocast&) = delete;

 private:
  friend struct Fp8Setting;
  bool enabled_;
  std::shared_ptr<const Fp8LayerRecipe> recipe_;
  const Fp8Autocast* outer_;
};

/// The setting of the innermost guards.
struct Fp8Setting {
  bool enabled = true;                                     ///< true without guards
  std::shared_ptr<const Fp8LayerRecipe> recipe = nullptr;  ///< of the guards; null: none
  ULP_API static Fp8Setting current();
};

}  // namespace ulp::amp
