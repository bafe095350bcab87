#include "cli/fp8_recipe_file.h"

#include "cli/recipe_file.h"
#include "ulp/base/error.h"

namespace ulp::cli {

void add_fp8_recipe_flag(CLI::App& command, std::string& file) {
  command.add_option(
      "--fp8-recipe", file,
      "In an fp8 precision: which layers compute in fp8, and how, as JSON (an ulp.amp.Fp8Recipe)");
}

void check_fp8_recipe_flag(const std::string& file, const amp::PrecisionName& precision) {
  if (!file.empty() && !precision->fp8) {
    throw CLI::ValidationError("--fp8-recipe needs an fp8 precision, and --precision " + precision.name() +
                               " is none");
  }
}

std::optional<amp::Fp8Recipe> read_fp8_recipe(const std::string& file, const amp::PrecisionName& precision) {
  if (!precision->fp8) return std::nullopt;
  if (file.empty()) return amp::Fp8Recipe::named(precision.name());
  auto recipe = read_recipe<amp::Fp8Recipe>(file);
  const amp::Fp8Scaling said = amp::Fp8Recipe::named(precision.name()).layers.scaling;
  if (recipe.layers.scaling != said) {
    fail_file("cli.read_fp8_recipe", "expected \"layers\": {\"scaling\": \"", enum_name(said),
              "\"} in the recipe '", file, "', as --precision ", precision.name(), " says, got ",
              enum_name(recipe.layers.scaling));
  }
  return recipe;
}

}  // namespace ulp::cli
