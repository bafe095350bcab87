// Which overrides and skip patterns of a recipe mean an op.
#include <algorithm>
#include <string_view>

#include "ulp/quant/recipe.h"

namespace ulp::quant {
namespace {

// Glob with '*' only; a '*' also matches dots.
bool matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    for (size_t i = 0; i <= text.size(); ++i) {
      if (matches(pattern.substr(1), text.substr(i))) return true;
    }
    return false;
  }
  return !text.empty() && pattern[0] == text[0] && matches(pattern.substr(1), text.substr(1));
}

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
  for (size_t end = 0; end != std::string::npos;) {
    end = module.find('.', end + 1);
    if (matches(pattern, std::string_view(module).substr(0, end))) return true;
  }
  return false;
}

bool Override::matches(const OpName& name) const {
  return (op.empty() || quant::matches(op, name.op)) &&
         (module.empty() || matches_module(module, name.module)) &&
         (value.empty() || quant::matches(value, name.value));
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
