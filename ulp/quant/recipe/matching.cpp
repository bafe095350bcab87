// Which overrides and skip patterns of a recipe mean an op.
#include <algorithm>

#include "ulp/base/glob.h"
#include "ulp/quant/recipe.h"

namespace ulp::quant {
namespace {

// The most particular override that matches: a value's before a module's before an op's, the last of equals.
const TensorRecipe& resolve(const Recipe& recipe, std::optional<TensorRecipe> Override::*field,
                            const TensorRecipe& otherwise, const OpName& name) {
  const TensorRecipe* found = &otherwise;
  int best = -1;
  for (const Override& rule : recipe.overrides) {
    const int rank = !rule.value.empty() ? 2 : !rule.module.empty() ? 1 : 0;
    if (!(rule.*field) || rank < best || !rule.matches(name)) continue;
    found = &*(rule.*field);
    best = rank;
  }
  return *found;
}

}  // namespace

bool matches_module(const std::string& pattern, const std::string& module) {
  return matches_path(pattern, module);
}

bool Override::matches(const OpName& name) const {
  return (op.empty() || matches_pattern(op, name.op)) &&
         (module.empty() || matches_module(module, name.module)) &&
         (value.empty() || matches_pattern(value, name.value));
}

const TensorRecipe& Recipe::activation_of(const OpName& name) const {
  return resolve(*this, &Override::activation, activation, name);
}

const TensorRecipe& Recipe::weight_of(const OpName& name) const {
  return resolve(*this, &Override::weight, weight, name);
}

bool Recipe::skips(const std::string& module) const {
  return std::any_of(skip_modules.begin(), skip_modules.end(),
                     [&](const std::string& pattern) { return matches_module(pattern, module); });
}

bool Recipe::skips(const OpName& name) const {
  return skips(name.module) ||
         std::find(skip_values.begin(), skip_values.end(), name.value) != skip_values.end();
}

}  // namespace ulp::quant
