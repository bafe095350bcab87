#include <nlohmann/json.hpp>

#include "ulp/app/prune/prune.h"
#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/base/parse_json.h"

namespace ulp::app {

namespace {

std::string type_in(const std::string& text) {
  try {
    const nlohmann::json json = parse_json(text);
    return json.is_object() && json.contains("type") && json["type"].is_string()
               ? json["type"].get<std::string>()
               : "";
  } catch (const nlohmann::json::exception& error) {
    fail_file("app.PruneRecipe", "expected a recipe in JSON: ", error.what());
  }
}

}  // namespace

void PruneRecipe::visit_fields(FieldVisitor& visit) {
  std::visit([&](auto& one) { one.visit_fields(visit); }, recipe);
  visit(kTrainingField, training);
}

void PruneRecipe::validate() const {
  std::visit([](const auto& one) { one.validate(); }, recipe);
  training.validate();
}

std::string PruneRecipe::to_json() const {
  auto used = as_used(training);
  nlohmann::json json =
      nlohmann::json::parse(std::visit([](const auto& one) { return one.to_json(); }, recipe));
  json[kTrainingField.name] = fields_to_json(used);
  return json.dump(2);
}

PruneRecipe PruneRecipe::from_json(const std::string& text) {
  PruneRecipe result;
  const std::string type = type_in(text);
  // The group "training" is the tool's.
  nlohmann::json own = parse_json(text);
  if (own.is_object()) own.erase(kTrainingField.name);
  if (type == prune::Recipe::kType) {
    result.recipe = prune::Recipe::from_json(own.dump());
  } else if (type == prune::ChannelPruningRecipe::kType) {
    result.recipe = prune::ChannelPruningRecipe::from_json(own.dump());
  } else {
    fail_file("app.PruneRecipe", "expected a recipe of type ", prune::Recipe::kType, " or ",
              prune::ChannelPruningRecipe::kType, ", got '", type, "'");
  }
  read_training(text, result.training);
  return result;
}

}  // namespace ulp::app
