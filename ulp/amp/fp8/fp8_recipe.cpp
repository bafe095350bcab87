#include "ulp/amp/fp8/fp8_recipe.h"

#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/base/glob.h"
#include "ulp/base/parse_json.h"
#include "ulp/base/recipe_file.h"

namespace ulp::amp {

namespace {

constexpr const char* kFp8RecipeWhere = "amp.Fp8Recipe";
constexpr int kFp8RecipeVersion = 1;
constexpr double kLongestHistory = 1 << 20;
constexpr double kLargestMargin = 32;

struct NamedScaling {
  const char* name;
  Fp8Scaling scaling;
};
constexpr std::array<NamedScaling, 6> kNamedScalings = {{{"fp8:delayed", Fp8Scaling::delayed},
                                                         {"fp8:current", Fp8Scaling::current},
                                                         {"fp8:rowwise", Fp8Scaling::rowwise},
                                                         {"fp8:block", Fp8Scaling::block},
                                                         {"mxfp8", Fp8Scaling::mxfp8},
                                                         {"nvfp4", Fp8Scaling::nvfp4}}};

}  // namespace

void Fp8LayerRecipe::visit_fields(FieldVisitor& visit) {
  visit({"scaling", "Where the scales come from"}, scaling);
  visit({"format", "delayed, current: the numbers"}, format);
  visit({"history", "delayed: steps whose largest magnitudes are kept", 1, kLongestHistory}, history);
  visit({"margin", "delayed: binades left above the largest magnitude", 0, kLargestMargin}, margin);
  visit({"amax", "delayed: which magnitude of the history counts"}, amax);
  visit({"power_of_2", "current: scales are powers of two"}, power_of_2);
  visit({"mx_rounding", "mxfp8: how the exponent of a scale is rounded"}, mx_rounding);
  visit({"hadamard", "nvfp4: mix neighbours before the product for a weight's gradient"}, hadamard);
  visit({"stochastic", "nvfp4: round gradients at random"}, stochastic);
}

void Fp8LayerRecipe::validate() const {
  check_limits(kFp8RecipeWhere, *this, "layers.");
}

std::string Fp8LayerRecipe::text() const {
  return changed_fields_to_json(*this).dump();
}

Fp8LayerRecipe Fp8LayerRecipe::from_text(const std::string& text) {
  Fp8LayerRecipe recipe;
  const nlohmann::json json = parse_json_or_discarded(text);
  if (!json.is_object())
    fail("amp.Fp8LayerRecipe", "expected the fields of a recipe as JSON, got '", text, "'");
  try {
    fields_from_json(json, recipe, "", {}, /*limits=*/true);
  } catch (const FieldProblem& problem) {
    fail("amp.Fp8LayerRecipe", problem.text);
  }
  return recipe;
}

void Fp8Override::visit_fields(FieldVisitor& visit) {
  visit({"module", "Layers of modules of this path"}, module);
  visit({"layers", "How they compute"}, layers);
}

Fp8Recipe Fp8Recipe::named(std::string_view name) {
  Fp8Recipe recipe;
  std::array<const char*, kNamedScalings.size()> names{};
  for (size_t i = 0; i < kNamedScalings.size(); ++i) {
    names[i] = kNamedScalings[i].name;
    if (name != kNamedScalings[i].name) continue;
    recipe.layers.scaling = kNamedScalings[i].scaling;
    return recipe;
  }
  fail("amp.Fp8Recipe.named", "expected ", one_of(names), ", got '", name, "'");
}

const Fp8LayerRecipe& Fp8Recipe::layers_of(const std::string& module) const {
  const Fp8LayerRecipe* found = &layers;
  for (const Fp8Override& rule : overrides) {
    if (matches_path(rule.module, module)) found = &rule.layers;
  }
  return *found;
}

void Fp8Recipe::visit_fields(FieldVisitor& visit) {
  visit({"layers", "How layers compute"}, layers);
  visit({"first", "The first layer, too"}, first);
  visit({"last", "The last layer, too"}, last);
  visit({"skip_modules", "Module paths left as they are; '*' matches any run of characters"}, skip_modules);
  visit({"overrides", "Other recipes for some modules"}, overrides,
        Fp8Override{.module = {}, .layers = layers});
}

void Fp8Recipe::validate() const {
  check_limits(kFp8RecipeWhere, *this);
  for (const Fp8Override& rule : overrides) {
    if (rule.module.empty())
      fail(kFp8RecipeWhere, "expected the path of a module in each of the overrides, got none");
  }
}

std::string Fp8Recipe::to_json() const {
  return write_recipe(*this, kFp8RecipeVersion);
}

Fp8Recipe Fp8Recipe::from_json(const std::string& text) {
  Fp8Recipe recipe;
  read_recipe(text, recipe, kFp8RecipeVersion);
  return recipe;
}

}  // namespace ulp::amp
