// A recipe of any mode: what says, as a whole, how a model is quantized.
#pragma once

#include <string>
#include <variant>

#include "ulp/base/export.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::quant {

/// Ranges come from calibration data.
using StaticRecipe = Recipe;

/// One way to quantize: a struct of fields with validate() and versioned JSON.
using AnyRecipe = std::variant<StaticRecipe, DynamicRecipe, WeightOnlyRecipe, QatRecipe>;

/// {"type": "ulp.quant.DynamicRecipe", "version": 1, ...}.
ULP_API std::string to_json(const AnyRecipe& recipe);
/// The recipe that "type" names. Throws FileError for other JSON, and what from_json() of that recipe throws.
ULP_API AnyRecipe any_recipe_from_json(const std::string& text);
/// "ulp.quant.DynamicRecipe".
ULP_API const char* type_of(const AnyRecipe& recipe);
/// Throws ulp::Error naming the field.
ULP_API void validate(const AnyRecipe& recipe);
/// The part of a recipe about the tensors of each op: of the static mode all there is, of training its
/// `tensors`; null for modes that know no single tensors.
ULP_API Recipe* tensors_of(AnyRecipe& recipe);
/// The part about tensors, to read.
ULP_API const Recipe* tensors_of(const AnyRecipe& recipe);

}  // namespace ulp::quant
