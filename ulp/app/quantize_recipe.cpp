#include "ulp/app/quantize_recipe.h"

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/base/parse_json.h"

namespace ulp::app {

namespace {

constexpr FieldInfo kTraining{"training", "How the model is trained on"};

bool trains(const quant::AnyRecipe& recipe) {
  return std::holds_alternative<quant::QatRecipe>(recipe);
}

}  // namespace

void ModeRecipe::visit_fields(FieldVisitor& visit) {
  std::visit([&](auto& one) { one.visit_fields(visit); }, recipe);
  if (trains(recipe)) visit(kTraining, training);
}

void ModeRecipe::validate() const {
  quant::validate(recipe);
  if (trains(recipe)) training.validate();
}

std::string ModeRecipe::to_json() const {
  const std::string text = quant::to_json(recipe);
  if (!trains(recipe)) return text;
  nlohmann::json json = nlohmann::json::parse(text);
  QatTraining used = training;  // with the rate and decay that the optimizer chooses by itself
  used.options.learning_rate = training.options.peak_rate();
  used.options.weight_decay = training.options.decay();
  json[kTraining.name] = fields_to_json(used);
  return json.dump(2);
}

ModeRecipe ModeRecipe::from_json(const std::string& text) {
  ModeRecipe result{.recipe = quant::any_recipe_from_json(text)};
  const nlohmann::json json = parse_json(text);
  if (!trains(result.recipe) || !json.contains(kTraining.name)) return result;
  try {
    fields_from_json(json[kTraining.name], result.training, std::string(kTraining.name) + ".",
                     /*also=*/{}, /*limits=*/true);
  } catch (const FieldProblem& problem) {
    fail_file("app.QatTraining", problem.text);
  }
  result.training.validate();
  return result;
}

}  // namespace ulp::app
