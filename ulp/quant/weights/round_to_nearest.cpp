#include "ulp/quant/weights/round_to_nearest.h"

#include <torch/utils.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/glob.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/weights/hqq.h"
#include "ulp/quant/weights/weight_coder.h"

namespace ulp::quant {
namespace {

/// Codes of up to 4 bits [rows, columns] -> two in a byte [rows, groups, size / 2]; what pads the last group
/// is zero.
at::Tensor pack_nibbles(const at::Tensor& codes, const WeightOnlyRecipe& recipe) {
  const int64_t columns = codes.size(1);
  const int64_t size = recipe.group < 0 ? columns + columns % 2 : recipe.group;
  const int64_t groups = (columns + size - 1) / size;
  const at::Tensor nibbles = recipe.affine ? codes : (codes.to(at::kShort) + 8).to(at::kByte);
  const at::Tensor whole = at::constant_pad_nd(nibbles, {0, groups * size - columns});
  const at::Tensor pairs = whole.view({codes.size(0), groups, size / 2, 2});
  return pairs.select(3, 0).bitwise_or(pairs.select(3, 1).bitwise_left_shift(4)).contiguous();
}

/// Overrides that are right one by one may not fit together.
WeightOnlyRecipe recipe_of(const std::string& name, const WeightOnlyRecipe& recipe) {
  WeightOnlyRecipe own = recipe.of_weight(name);
  try {
    own.validate();
  } catch (const Error& error) {
    fail("quant.quantize_weights", "in the overrides of '", name, "': ", error.what());
  }
  return own;
}

}  // namespace

StoredQuantizedWeight stored_with_minima(const at::Tensor& codes, const at::Tensor& scale,
                                         const at::Tensor& minimum, const WeightOnlyRecipe& recipe) {
  return {.codes = pack_nibbles(codes, recipe), .scale = scale, .columns = codes.size(1), .minimum = minimum};
}

StoredQuantizedWeight stored_codes(const at::Tensor& codes, const QParams& params,
                                   const WeightOnlyRecipe& recipe) {
  if (recipe.bits == 8) return {.codes = codes, .scale = params.scale, .columns = codes.size(1)};
  const std::vector<int64_t> parts = {codes.size(0), params.scale.numel() / codes.size(0)};
  StoredQuantizedWeight made{
      .codes = pack_nibbles(codes, recipe), .scale = params.scale.view(parts), .columns = codes.size(1)};
  if (recipe.affine) made.zero_point = params.zero_point.to(at::kByte).view(parts);
  return made;
}

void check_finite_weight(const std::string& name, const at::Tensor& values) {
  if (at::isfinite(values).all().item<bool>()) return;
  fail("quant.quantize_weights", "expected finite weights in '", name, "', got NaN or infinite values");
}

StoredQuantizedWeight rounded_codes(const std::string& name, const at::Tensor& values,
                                    const WeightOnlyRecipe& recipe) {
  check_finite_weight(name, values);
  if (recipe.method == WeightMethod::hqq) return hqq_weight(values, recipe);
  const QParams params = qparams_of(values, recipe.scheme());
  return stored_codes(quantize(values, params), params, recipe);
}

Tables tables_of(const std::vector<graph::Node*>& layers) {
  Tables tables;
  for (const graph::Node* layer : layers) {
    if (layer->is("aten::embedding")) tables.insert(layer->arg("weight").value);
  }
  return tables;
}

WeightOnlyRecipe table_recipe(const WeightOnlyRecipe& recipe) {
  WeightOnlyRecipe own = recipe;
  own.bits = std::max<int64_t>(recipe.bits, 4);
  own.method = WeightMethod::rtn;
  own.act_order = own.static_groups = false;
  return own;
}

WeightRecipes recipes_of(const std::vector<graph::Node*>& layers, const WeightOnlyRecipe& recipe) {
  const Tables tables = tables_of(layers);
  WeightRecipes recipes;
  for (const graph::Node* layer : layers) {
    const graph::Value* weight = layer->arg("weight").value;
    const WeightOnlyRecipe own = recipe_of(weight_name(*layer), recipe);
    recipes.emplace(weight, tables.contains(weight) ? table_recipe(own) : own);
  }
  for (const WeightOverride& one : recipe.overrides) {
    const auto matches = [&](const graph::Node* layer) {
      return matches_path(one.weight, weight_name(*layer));
    };
    if (std::ranges::none_of(layers, matches))
      fail("quant.quantize_weights", "expected overrides of weights that are stored small, got '", one.weight,
           "'");
  }
  return recipes;
}

LayerRewrite weights_rewrite(const WeightOnlyRecipe& recipe) {
  std::vector<std::string> ops = {"aten::linear"};
  if (recipe.embeddings) ops.emplace_back("aten::embedding");
  return {.where = "quant.quantize_weights",
          .pass = "quantize_weights",
          .wanted = "linear layer or embedding",
          .done = "reads weights of",
          .ops = ops,
          .skip_modules = recipe.skip_modules,
          .products = true,
          .refusal = coding_obstacle,
          .rewrite = {}};
}

}  // namespace ulp::quant
