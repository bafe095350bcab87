#include "ulp/app/fine_tuning.h"

#include <array>

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/base/parse_json.h"

namespace ulp::app {

namespace {

/// The options that a recipe file may say; the others are of a run from nothing.
constexpr std::array kOfRecipe = {"precision",     "optimizer", "epochs",       "batch",
                                  "learning_rate", "momentum",  "weight_decay", "schedule",
                                  "warmup",        "max_steps", "seed",         "augment"};

}  // namespace

void FineTuning::visit_fields(FieldVisitor& visit) {
  visit_some(visit, kOfRecipe, [&](FieldVisitor& some) { options.visit_fields(some); });
}

void FineTuning::validate() const {
  options.validate();
  if (options.resolved_precision().parameter_dtype) {
    fail("app.FineTuning", "expected a precision with fp32 parameters, got ", options.precision);
  }
}

FineTuning FineTuning::as_used() const {
  FineTuning used = *this;
  used.options.learning_rate = options.peak_rate();
  used.options.weight_decay = options.decay();
  return used;
}

void read_training(const std::string& recipe, FineTuning& training) {
  const nlohmann::json json = parse_json(recipe);
  if (!json.contains(kTrainingField.name)) return;
  try {
    fields_from_json(json[kTrainingField.name], training, std::string(kTrainingField.name) + ".",
                     /*also=*/{}, /*limits=*/true);
  } catch (const FieldProblem& problem) {
    fail_file("app.FineTuning", problem.text);
  }
  training.validate();
}

}  // namespace ulp::app
