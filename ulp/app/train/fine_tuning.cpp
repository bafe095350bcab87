#include "ulp/app/train/fine_tuning.h"

#include <torch/utils.h>

#include <array>

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/base/parse_json.h"
#include "ulp/distill/teacher.h"
#include "ulp/train/learning.h"

namespace ulp::app {

namespace {

/// The options that a recipe file may say; the others are of a run from nothing.
constexpr std::array kOfRecipe = {"precision",     "optimizer", "epochs",       "batch",    "accumulate",
                                  "learning_rate", "momentum",  "weight_decay", "schedule", "warmup",
                                  "max_steps",     "seed",      "augment"};

template <typename Training>
void read(const std::string& recipe, Training& training) {
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

}  // namespace

void RecipeTraining::visit_fields(FieldVisitor& visit) {
  visit_some(visit, kOfRecipe, [&](FieldVisitor& some) { options.visit_fields(some); });
}

void RecipeTraining::validate() const {
  options.validate();
  if (options.resolved_precision().parameter_dtype) {
    fail("app.FineTuning", "expected a precision with fp32 parameters, got ", options.precision);
  }
}

FineTuning::FineTuning() {
  options = {.epochs = 1,
             .learning_rate = 0.01,
             .weight_decay = 1e-4,
             .schedule = amp::Schedule::cosine,
             .warmup = 0.05};
}

void FineTuning::visit_fields(FieldVisitor& visit) {
  RecipeTraining::visit_fields(visit);
  visit({.name = "loss",
         .help = "A loss of distillation that the model as it was teaches, as of `ulp distill`; may be given "
                 "several times",
         .unset = "labels alone"},
        loss);
}

void FineTuning::validate() const {
  RecipeTraining::validate();
  lessons();
}

std::optional<distill::Recipe> FineTuning::lessons() const {
  if (loss.empty()) return std::nullopt;
  distill::Recipe recipe = distill::Recipe::from_terms(loss);
  recipe.validate();
  return recipe;
}

std::shared_ptr<distill::Distiller> taught_by(const graph::GraphModule& before,
                                              std::shared_ptr<graph::GraphModule> model,
                                              const FineTuning& training, train::BatchStream& batches) {
  const std::optional<distill::Recipe> lessons = training.lessons();
  if (!lessons) return nullptr;
  torch::manual_seed(static_cast<int64_t>(training.options.seed));  // adapters and memories
  distill::DistillerSetup setup = train::distillation_setup(batches, training.options);
  setup.student = std::move(model);
  setup.teacher = distill::graph_teacher(before, distill::teacher_places(*lessons));
  setup.recipe = *lessons;
  return std::make_shared<distill::Distiller>(std::move(setup));
}

void read_training(const std::string& recipe, RecipeTraining& training) {
  read(recipe, training);
}
void read_training(const std::string& recipe, FineTuning& training) {
  read(recipe, training);
}

}  // namespace ulp::app
