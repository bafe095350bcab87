// A recipe of `ulp distill` as a file holds it: the losses, and how the student trains.
#pragma once

#include <string>

#include "ulp/app/train/fine_tuning.h"
#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/distill/recipe.h"

namespace ulp::app {

/// The recipe's own fields and the group "training".
struct ULP_API DistillRecipe {
  distill::Recipe recipe = {};
  RecipeTraining training = {};  ///< from nothing, as ulp train does

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  std::string to_json() const;
  /// Throws FileError for other text.
  static DistillRecipe from_json(const std::string& text);
};

}  // namespace ulp::app
