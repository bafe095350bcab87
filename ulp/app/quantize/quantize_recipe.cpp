#include "ulp/app/quantize/quantize_recipe.h"

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"

namespace ulp::app {

namespace {

bool trains(const quant::AnyRecipe& recipe) {
  return std::holds_alternative<quant::QatRecipe>(recipe);
}

}  // namespace

void ModeRecipe::visit_fields(FieldVisitor& visit) {
  std::visit([&](auto& one) { one.visit_fields(visit); }, recipe);
  if (trains(recipe)) visit(kTrainingField, training);
}

void ModeRecipe::validate() const {
  quant::validate(recipe);
  if (trains(recipe)) training.validate();
}

std::string ModeRecipe::to_json() const {
  const std::string text = quant::to_json(recipe);
  if (!trains(recipe)) return text;
  nlohmann::json json = nlohmann::json::parse(text);
  json[kTrainingField.name] = fields_to_json(as_used(training));
  return json.dump(2);
}

ModeRecipe ModeRecipe::from_json(const std::string& text) {
  ModeRecipe result{.recipe = quant::any_recipe_from_json(text)};
  if (trains(result.recipe)) read_training(text, result.training);
  return result;
}

}  // namespace ulp::app
