// The fields of a recipe, and their JSON.
#include "ulp/base/recipe_file.h"
#include "ulp/quant/recipe.h"

namespace ulp::quant {

void TensorRecipe::visit_fields(FieldVisitor& visit) {
  visit({"observer", "What finds the range to represent"}, observer);
  visit({"averaging_constant", "moving_average: weight of the newest batch", 0, 1, true}, averaging_constant);
  visit({"percentile", "percentile: how much of the values is kept, in per cent", 0, 100, true}, percentile);
  visit({"fixed_min", "fixed: the smallest value"}, fixed_min);
  visit({"fixed_max", "fixed: the largest value"}, fixed_max);
  visit({"scheme", "Which integers, and how"}, scheme);
}

void Override::visit_fields(FieldVisitor& visit) {
  visit({.name = "op", .help = "Ops of this name", .keep_empty = false}, op);
  visit({.name = "module", .help = "Ops that modules of this path call", .keep_empty = false}, module);
  visit({.name = "value", .help = "The op that computes this value", .keep_empty = false}, value);
  visit({.name = "activation", .help = "How the op's result is quantized", .absent = ""}, activation);
  visit({.name = "weight", .help = "How the layer's weight is quantized", .absent = ""}, weight);
}

void Recipe::visit_fields(FieldVisitor& visit) {
  visit({"backend", "What is to run the integers"}, backend);
  visit({"activation", "How results of ops are quantized"}, activation);
  visit({"weight", "How weights are quantized"}, weight);
  visit({"ops", "Ops that are quantized"}, ops);
  visit({"skip_modules", "Module paths left in float; '*' matches any run of characters"}, skip_modules);
  visit({"skip_values", "Ops left in float, by the value they compute in the listing"}, skip_values);
  const Override prototype{.op = {}, .module = {}, .value = {}, .activation = activation, .weight = weight};
  visit({"overrides", "Exceptions for some ops"}, overrides, prototype);
  methods.visit_fields(visit);
}

std::string Recipe::to_json() const {
  return write_recipe(*this, kRecipeVersion);
}

Recipe Recipe::from_json(const std::string& text) {
  Recipe recipe = x86_int8();
  read_recipe(text, recipe, kRecipeVersion);
  return recipe;
}

}  // namespace ulp::quant
