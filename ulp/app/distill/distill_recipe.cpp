#include "ulp/app/distill/distill_recipe.h"

#include <nlohmann/json.hpp>

#include "ulp/base/fields_json.h"
#include "ulp/base/parse_json.h"

namespace ulp::app {

void DistillRecipe::visit_fields(FieldVisitor& visit) {
  recipe.visit_fields(visit);
  visit(kTrainingField, training);
}

void DistillRecipe::validate() const {
  recipe.validate();
  training.validate();
}

std::string DistillRecipe::to_json() const {
  auto used = as_used(training);
  nlohmann::json json = nlohmann::json::parse(recipe.to_json());
  json[kTrainingField.name] = fields_to_json(used);
  return json.dump(2);
}

DistillRecipe DistillRecipe::from_json(const std::string& text) {
  DistillRecipe result;
  nlohmann::json own = parse_json_or_discarded(text);  // the group "training" is the tool's
  if (own.is_object()) own.erase(kTrainingField.name);
  result.recipe = distill::Recipe::from_json(own.is_discarded() ? text : own.dump());
  read_training(text, result.training);
  return result;
}

}  // namespace ulp::app
