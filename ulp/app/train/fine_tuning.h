// Training on of a network that was trained before and then changed: quantized, pruned.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/distill/distiller.h"
#include "ulp/distill/recipe.h"
#include "ulp/graph/graph_module.h"
#include "ulp/train/train_options.h"
#include "ulp/train/trainer.h"

namespace ulp::app {

/// The options of training that a recipe file says.
struct ULP_API RecipeTraining {
  train::TrainOptions options = {};

  /// Those of the options that a recipe file may say.
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
};

/// Fine-tuning of a trained model: small steps down a cosine.
struct ULP_API FineTuning : RecipeTraining {
  /// Losses of distillation from the model as it was, beside or instead of the labels, as
  /// distill::Recipe::from_terms() reads them. Empty: labels alone.
  std::vector<std::string> loss = {};

  FineTuning();
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// The losses, if there are some.
  std::optional<distill::Recipe> lessons() const;
};

/// `model` as a learner of what `before`, the model as it was, teaches by these losses; null where there are
/// none. Throws ulp::Error as distill::Distiller does.
ULP_API std::shared_ptr<distill::Distiller> taught_by(const graph::GraphModule& before,
                                                      std::shared_ptr<graph::GraphModule> model,
                                                      const FineTuning& training,
                                                      train::BatchStream& batches);

/// Fills in the rate and decay that the optimizer chooses by itself, as recipe files hold them.
template <typename Training>
Training as_used(Training training) {
  training.options.learning_rate = training.options.peak_rate();
  training.options.weight_decay = training.options.decay();
  return training;
}

/// The name and help of the group of these fields in a recipe.
inline constexpr FieldInfo kTrainingField{"training", "How the model is trained on"};

/// Called after each step of training.
using OnStep = std::function<void(const train::StepInfo& info, int64_t total_steps)>;

/// Reads the group "training" of a recipe's JSON where it is there. Throws FileError for fields or values
/// that are not known, and ulp::Error as validate() does.
ULP_API void read_training(const std::string& recipe, RecipeTraining& training);
ULP_API void read_training(const std::string& recipe, FineTuning& training);

}  // namespace ulp::app
