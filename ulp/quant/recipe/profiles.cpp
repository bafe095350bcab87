// The recipes that have a name: one for each backend.
#include "ulp/base/error.h"
#include "ulp/quant/recipe.h"

namespace ulp::quant {

namespace {

/// What multiplies codes of two activations is the engine's kernel on x86: that for Arm has not been measured, and other
/// runtimes multiply floats there.
void leave_attention(Recipe& recipe) {
  std::erase(recipe.ops, "scaled_dot_product_attention");
}

}  // namespace

Recipe Recipe::x86_int8() {
  Recipe recipe;
  recipe.activation = {.scheme = {}, .observer = ObserverKind::histogram};
  recipe.weight = {.scheme = {.is_signed = true,
                              .mapping = Mapping::symmetric,
                              .range = Range::restricted,
                              .granularity = PerChannel{0}},
                   .observer = ObserverKind::min_max};
  recipe.ops = {"conv1d", "conv2d", "conv3d", "linear", "add", "mul", "scaled_dot_product_attention"};
  return recipe;
}

Recipe Recipe::arm_int8() {
  Recipe recipe = x86_int8();
  recipe.backend = Backend::arm_int8;
  leave_attention(recipe);
  return recipe;
}

Recipe Recipe::tflite_int8() {
  Recipe recipe = x86_int8();
  recipe.backend = Backend::tflite_int8;
  recipe.activation = {.scheme = {.is_signed = true}, .observer = ObserverKind::min_max};
  recipe.ops.assign(static_ops().begin(), static_ops().end());
  leave_attention(recipe);
  // (max - min) / 255 is 1/256 and 1/128 for these bounds.
  const auto ends_in = [&](const char* op, double min, double max) {
    TensorRecipe fixed = recipe.activation;
    fixed.observer = ObserverKind::fixed;
    fixed.fixed_min = min;
    fixed.fixed_max = max;
    recipe.overrides.push_back({.op = op, .module = {}, .value = {}, .activation = fixed, .weight = {}});
  };
  ends_in("softmax", 0, 255.0 / 256);
  ends_in("sigmoid", 0, 255.0 / 256);
  ends_in("tanh", -1, 127.0 / 128);
  return recipe;
}

Recipe Recipe::onnx_qdq() {
  Recipe recipe = x86_int8();
  recipe.backend = Backend::onnx_qdq;
  leave_attention(recipe);
  recipe.weight.scheme.range = Range::full;
  return recipe;
}

Recipe Recipe::weight_only() {
  Recipe recipe = x86_int8();
  recipe.backend = Backend::weight_only;
  recipe.weight.scheme.bits = 4;
  recipe.weight.scheme.granularity = PerGroup{32};
  return recipe;
}

Recipe Recipe::binary() {
  Recipe recipe = x86_int8();
  recipe.backend = Backend::binary;
  recipe.ops.clear();
  return recipe;
}

const char* to_string(Backend backend) {
  return enum_name(backend);
}

std::vector<std::string> recipe_profiles() {
  std::vector<std::string> names;
  for (const Word<Backend>& backend : EnumNames<Backend>::list) names.emplace_back(backend.text);
  return names;
}

Recipe Recipe::profile(const std::string& name) {
  for (const Recipe& recipe : {x86_int8(), arm_int8(), tflite_int8(), onnx_qdq(), weight_only(), binary()}) {
    if (name == to_string(recipe.backend)) return recipe;
  }
  fail("quant.Recipe", "expected ", one_of(enum_names<Backend>()), ", got '", name, "'");
}

}  // namespace ulp::quant
