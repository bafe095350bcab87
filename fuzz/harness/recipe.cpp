// Recipes of every mode: what is read can be written and read again.
#include <string>

#include "container_mutator.h"
#include "harness.h"
#include "ulp/quant/any_recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulp::quant;
  const std::string text(reinterpret_cast<const char*>(data), size);
  AnyRecipe recipe;
  if (ulp::fuzz::refused<ulp::Error>([&] { recipe = any_recipe_from_json(text); })) return 0;
  const std::string written = to_json(recipe);
  ulp::fuzz::require(to_json(any_recipe_from_json(written)) == written, "the recipe that was written");
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  using namespace ulp::quant;
  static const ulp::fuzz::Vocabulary vocabulary = {
      .words = {StaticRecipe::kType, DynamicRecipe::kType, WeightOnlyRecipe::kType, QatRecipe::kType,
                "conv2d", "linear", "lstm", "*", "histogram", "min_max", "fixed", "per_tensor", "per_channel",
                "per_group", "per_token"},
      .fields = {{"version", 1},
                 {"version", 2},
                 {"version", 3},
                 {"skip_modules", {"a.*"}},
                 {"ops", {"linear"}},
                 {"bits", 4},
                 {"group", 32},
                 {"affine", true},
                 {"axis", 0},
                 {"size", 32},
                 {"observer", "mse"},
                 {"overrides", nlohmann::json::array()},
                 {"backend", "onnx_qdq"}}};
  return ulp::fuzz::mutate_text(data, size, max_size, seed, vocabulary);
}
