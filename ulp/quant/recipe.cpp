#include "ulp/quant/recipe.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/quant/observers/observer_registry.h"

namespace ulp::quant {
namespace {

constexpr std::array<const char*, 10> kOps = {
    "conv1d", "conv2d",  "conv3d",  "linear", "add",
    "mul",    "softmax", "sigmoid", "tanh",   "scaled_dot_product_attention"};

void validate_activation(const TensorRecipe& recipe, const std::string& what) {
  recipe.validate(what.c_str());
  if (recipe.scheme.per_tensor()) return;
  fail("quant.Recipe", "expected ", what, " per tensor, got ", to_string(recipe.scheme.granularity));
}

void validate_weight(const TensorRecipe& recipe, const std::string& what) {
  const Scheme& scheme = recipe.scheme;
  recipe.validate(what.c_str());
  if (!scheme.per_tensor() && scheme.granularity != Granularity(PerChannel{0})) {
    fail("quant.Recipe", "expected ", what, " per tensor or per channel 0, got ",
         to_string(scheme.granularity));
  }
  if (scheme.mapping != Mapping::symmetric || !scheme.is_signed) {
    fail("quant.Recipe", "expected ", what, " signed and symmetric, got ", scheme.to_string());
  }
}

}  // namespace

std::span<const char* const> static_ops() {
  return kOps;
}

void TensorRecipe::validate(const char* what) const {
  try {
    scheme.validate();
  } catch (const Error& error) {
    fail("quant.Recipe", what, ": ", error.what());
  }
  check_limits("quant.Recipe", *this, std::string(what) + ".");
  const std::string obstacle = observer_obstacle(*this);
  if (!obstacle.empty()) fail("quant.Recipe", "expected ", what, ' ', obstacle);
}

void Recipe::validate() const {
  validate_activation(activation, "activation");
  methods.validate("quant.Recipe");
  if (methods.any() && (backend == Backend::weight_only || backend == Backend::binary))
    fail("quant.Recipe", "expected no methods for ", to_string(backend), ", got ", methods.method.front());
  if (backend == Backend::weight_only) {
    weight.validate("weight");  // its schemes are quantize_weights()'s to judge
    if (!overrides.empty())
      fail("quant.Recipe", "expected no overrides for weight_only, got ", overrides.size());
    return;
  }
  validate_weight(weight, "weight");
  for (size_t i = 0; i < overrides.size(); ++i) {
    const std::string name = "overrides[" + std::to_string(i) + "]";
    const Override& rule = overrides[i];
    if (rule.op.empty() && rule.module.empty() && rule.value.empty()) {
      fail("quant.Recipe", "expected ", name, " to name an op, a module or a value, got none");
    }
    if (rule.activation) validate_activation(*rule.activation, name + ".activation");
    if (rule.weight) validate_weight(*rule.weight, name + ".weight");
  }
  for (const auto& op : ops) {
    if (std::ranges::find(kOps, op) == kOps.end()) {
      fail("quant.Recipe", "expected ops of ", one_of(kOps), ", got '", op, "'");
    }
  }
}

}  // namespace ulp::quant
