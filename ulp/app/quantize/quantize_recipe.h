// The file of `ulp quantize --recipe`: the recipe of one mode, and for qat how it trains.
#pragma once

#include <string>

#include "ulp/app/quantize/quantize.h"
#include "ulp/base/export.h"
#include "ulp/quant/any_recipe.h"

namespace ulp::app {

/// A recipe as a file of the tool holds it.
struct ULP_API ModeRecipe {
  quant::AnyRecipe recipe;
  FineTuning training = {};  ///< qat

  /// The recipe's fields; of qat also the group "training".
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// The recipe's own JSON; of qat with an object "training" beside its fields.
  std::string to_json() const;
  /// The mode is what "type" says. Throws FileError as quant::any_recipe_from_json().
  static ModeRecipe from_json(const std::string& text);
};

}  // namespace ulp::app
