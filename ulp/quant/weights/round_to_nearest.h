// Codes of a weight as WeightOnlyRecipe stores them, and plain rounding. Internal.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/quant/scheme/scheme.h"
#include "ulp/quant/weights/layer_rewrite.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::quant {

/// Codes [rows, columns] of the recipe's scheme -> as ulp::dequantize_weight takes them.
StoredQuantizedWeight stored_codes(const at::Tensor& codes, const QParams& params,
                                   const WeightOnlyRecipe& recipe);

/// Codes u8 [rows, columns] of an affine recipe with scale and minimum f32 [rows, groups].
StoredQuantizedWeight stored_with_minima(const at::Tensor& codes, const at::Tensor& scale,
                                         const at::Tensor& minimum, const WeightOnlyRecipe& recipe);

/// Throws ulp::Error naming the weight for NaN and infinite values.
void check_finite_weight(const std::string& name, const at::Tensor& values);

/// Codes of a method without data: round to nearest with each group's own range, or hqq. Throws ulp::Error
/// for weights that are not finite.
StoredQuantizedWeight rounded_codes(const std::string& name, const at::Tensor& values,
                                    const WeightOnlyRecipe& recipe);

/// Weights that embeddings among these layers read: no method of linear layers is for them.
using Tables = std::unordered_set<const graph::Value*>;
Tables tables_of(const std::vector<graph::Node*>& layers);

/// The recipe of tables: rounded, and with 4 bits at least. 2 and 3 bits are stored as 4, so that fewer save
/// nothing.
WeightOnlyRecipe table_recipe(const WeightOnlyRecipe& recipe);

/// The recipe of each weight that the layers read, overrides and tables considered. Throws ulp::Error for an
/// override that matches none of them.
using WeightRecipes = std::unordered_map<const graph::Value*, WeightOnlyRecipe>;
WeightRecipes recipes_of(const std::vector<graph::Node*>& layers, const WeightOnlyRecipe& recipe);

/// What all methods share: which layers, and what is said of them.
LayerRewrite weights_rewrite(const WeightOnlyRecipe& recipe);

}  // namespace ulp::quant
