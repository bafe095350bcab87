// Training on of a network that was trained before and then changed: quantized, pruned.
#pragma once

#include <functional>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/train/train_options.h"
#include "ulp/train/trainer.h"

namespace ulp::app {

/// Fine-tuning of a trained model: small steps down a cosine.
struct ULP_API FineTuning {
  train::TrainOptions options = {.epochs = 1,
                                 .learning_rate = 0.01,
                                 .weight_decay = 1e-4,
                                 .schedule = amp::Schedule::cosine,
                                 .warmup = 0.05};

  /// Those of the options that a recipe file may say.
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// The same with the rate and decay that the optimizer chooses by itself, as recipe files hold it.
  FineTuning as_used() const;
};

/// The name and help of the group of these fields in a recipe.
inline constexpr FieldInfo kTrainingField{"training", "How the model is trained on"};

/// Called after each step of training.
using OnStep = std::function<void(const train::StepInfo& info, int64_t total_steps)>;

/// Reads the group "training" of a recipe's JSON where it is there. Throws FileError for fields or values that are not known,
/// and ulp::Error as validate() does.
void read_training(const std::string& recipe, FineTuning& training);

}  // namespace ulp::app
