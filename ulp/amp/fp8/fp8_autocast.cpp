#include "ulp/amp/fp8/fp8_autocast.h"

namespace ulp::amp {

namespace {

thread_local const Fp8Autocast* innermost = nullptr;

}  // namespace

Fp8Autocast::Fp8Autocast(bool enabled, std::optional<Fp8LayerRecipe> recipe)
    : enabled_(enabled), outer_(innermost) {
  if (recipe) {
    recipe->validate();
    recipe_ = std::make_shared<const Fp8LayerRecipe>(*recipe);
  } else if (outer_ != nullptr) {
    recipe_ = outer_->recipe_;
  }
  innermost = this;
}

Fp8Autocast::~Fp8Autocast() {
  innermost = outer_;
}

Fp8Setting Fp8Setting::current() {
  if (innermost == nullptr) return {};
  return {innermost->enabled_, innermost->recipe_};
}

}  // namespace ulp::amp
