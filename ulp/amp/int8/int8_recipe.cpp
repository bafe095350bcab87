#include "ulp/amp/int8/int8_recipe.h"

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/base/recipe_file.h"

namespace ulp::amp {

namespace {

constexpr int kInt8RecipeVersion = 1;

struct NamedMethod {
  const char* name;
  Int8Method method;
};
constexpr std::array<NamedMethod, 4> kNamedMethods = {{{"int8", Int8Method::rowwise},
                                                       {"int8:switchback", Int8Method::switchback},
                                                       {"int8:rowwise", Int8Method::rowwise},
                                                       {"int8:jetfire", Int8Method::jetfire}}};

}  // namespace

void Int8LayerRecipe::visit_fields(FieldVisitor& visit) {
  visit({"method", "Which numbers share a scale, and which products are in int8"}, method);
  visit({"output", "With rowwise: the product of the forward pass is in int8"}, output);
  visit({"grad_input", "With rowwise: the product for the input's gradient is in int8"}, grad_input);
  visit({"grad_weight", "With rowwise: the product for the weight's gradient is in int8"}, grad_weight);
  visit({"stochastic", "Round gradients at random"}, stochastic);
}

void Int8LayerRecipe::validate() const {
  if (method == Int8Method::rowwise || (output && grad_input && grad_weight)) return;
  const char* field = !output ? "output" : !grad_input ? "grad_input" : "grad_weight";
  fail("amp.Int8LayerRecipe", "expected ", field, " to be true with method ", enum_name(method),
       ", got false; rowwise alone leaves products out");
}

Int8Recipe Int8Recipe::named(std::string_view name) {
  std::array<const char*, kNamedMethods.size()> names{};
  for (size_t i = 0; i < kNamedMethods.size(); ++i) {
    names[i] = kNamedMethods[i].name;
    if (name == kNamedMethods[i].name) return {.layers = {.method = kNamedMethods[i].method}};
  }
  fail("amp.Int8Recipe.named", "expected ", one_of(names), ", got '", name, "'");
}

void Int8Recipe::visit_fields(FieldVisitor& visit) {
  visit({"layers", "How layers compute"}, layers);
  visit({"first", "The first layer, too"}, first);
  visit({"last", "The last layer, too"}, last);
  visit({"skip_modules", "Module paths left as they are; '*' matches any run of characters"}, skip_modules);
}

void Int8Recipe::validate() const {
  layers.validate();
}

std::string Int8Recipe::to_json() const {
  return write_recipe(*this, kInt8RecipeVersion);
}

Int8Recipe Int8Recipe::from_json(const std::string& text) {
  Int8Recipe recipe;
  read_recipe(text, recipe, kInt8RecipeVersion);
  return recipe;
}

}  // namespace ulp::amp
