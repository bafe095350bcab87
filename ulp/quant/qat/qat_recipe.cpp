#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/base/recipe_file.h"
#include "ulp/quant/qat/qat.h"

namespace ulp::quant {
namespace {

/// 2: binary networks.
constexpr int kQatRecipeVersion = 2;

}  // namespace

void QatOptions::visit_fields(FieldVisitor& visit) {
  visit({"folding", "Batch norms while training: exact takes two passes, fast one"}, folding);
  visit({"learned", "What is learned besides the model"}, learned);
  visit({"learned_gradients", "Whose gradients learned scales and zero points have"}, learned_gradients);
  visit({"binary", "Binary layers, where the backend is binary"}, binary);
}

void QatRecipe::visit_fields(FieldVisitor& visit) {
  visit({"tensors", "Which ops, and how their tensors are quantized"}, tensors);
  options.visit_fields(visit);
  visit({"fake_quantize_after", "Share of the steps that train in float and are only observed", 0, 1},
        fake_quantize_after);
  visit({.name = "freeze_batch_norm_after",
         .help = "Share of the steps after which batch norms keep their statistics (1: never)",
         .min = 0,
         .max = 1,
         .flag = "freeze-batch-norm"},
        freeze_batch_norm_after);
  visit({.name = "freeze_observers_after",
         .help = "Share of the steps after which ranges stay (1: never)",
         .min = 0,
         .max = 1,
         .flag = "freeze-observers"},
        freeze_observers_after);
}

QatSchedule QatRecipe::schedule(int64_t total_steps) const {
  const auto step = [&](double share) {
    return static_cast<int64_t>(std::ceil(share * static_cast<double>(total_steps)));
  };
  const auto at = [&](double share) {
    return step(share) >= total_steps ? int64_t{-1} : std::max<int64_t>(step(share), 1);
  };
  return {.fake_quantize_from = step(fake_quantize_after),
          .freeze_observers_at = at(freeze_observers_after),
          .freeze_batch_norm_at = at(freeze_batch_norm_after),
          .binary_weights_from = step(options.binary.weights_after)};
}

void QatRecipe::validate() const {
  tensors.validate();
  if (tensors.methods.any())
    fail("quant.QatRecipe", "expected no methods of static quantization where a network is trained, got ",
         tensors.methods.method.front());
  if (tensors.backend != Backend::binary && options.binary != BinaryOptions()) {
    fail("quant.QatRecipe", "expected the backend binary for the fields of 'binary', got ",
         to_string(tensors.backend));
  }
  check_limits("quant.QatRecipe", *this);
}

std::string QatRecipe::to_json() const {
  return write_recipe(*this, kQatRecipeVersion);
}

QatRecipe QatRecipe::from_json(const std::string& text) {
  QatRecipe recipe;
  read_recipe(text, recipe, kQatRecipeVersion, std::array{"training"});
  return recipe;
}

}  // namespace ulp::quant
