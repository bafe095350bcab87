#include "ulp/quant/weights/weights.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/base/recipe_file.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/weights/layer_rewrite.h"
#include "ulp/quant/weights/weight_coder.h"

namespace ulp::quant {
namespace {

using graph::Graph;
using graph::Node;

constexpr const char* kQuantizeWeightsWhere = "quant.quantize_weights";
constexpr int kWeightRecipeVersion = 1;

/// Codes of 4 bits [rows, columns] -> two in a byte [rows, groups, size / 2]; what pads the last group is
/// zero.
at::Tensor pack(const at::Tensor& codes, const WeightOnlyRecipe& options) {
  const int64_t groups = (codes.size(1) + options.group - 1) / options.group;
  const at::Tensor nibbles = options.affine ? codes : (codes.to(at::kShort) + 8).to(at::kByte);
  const at::Tensor whole = at::constant_pad_nd(nibbles, {0, groups * options.group - codes.size(1)});
  const at::Tensor pairs = whole.view({codes.size(0), groups, options.group / 2, 2});
  return pairs.select(3, 0).bitwise_or(pairs.select(3, 1).bitwise_left_shift(4)).contiguous();
}

WeightCodes codes_of(const std::string& name, const at::Tensor& values, const WeightOnlyRecipe& options) {
  if (!at::isfinite(values).all().item<bool>()) {
    fail(kQuantizeWeightsWhere, "expected finite weights in '", name, "', got NaN or infinite values");
  }
  const QParams params = qparams_of(values, options.scheme());
  const at::Tensor codes = quantize(values, params);
  WeightCodes made{.codes = options.bits == 4 ? pack(codes, options) : codes,
                   .scale = params.scale,
                   .columns = values.size(1)};
  if (options.bits == 4 && options.affine) made.zero_point = params.zero_point.to(at::kByte);
  return made;
}

}  // namespace

WeightOnlyRecipe WeightOnlyRecipe::four_bits() {
  return {.bits = 4};
}

void WeightOnlyRecipe::visit_fields(FieldVisitor& visit) {
  visit({.name = "bits",
         .help = "8: a scale for each output channel; 4: one for each group",
         .min = 4,
         .max = 8,
         .flag = "weight-bits"},
        bits);
  visit({"group", "4 bits: neighbours in a row that share a scale; even", 2}, group);
  visit({"affine", "4 bits: a zero point for each group"}, affine);
  visit({"embeddings", "Embeddings, too, not linear layers alone"}, embeddings);
  visit({"skip_modules", "Module paths left in float; '*' matches any run of characters"}, skip_modules);
}

std::string WeightOnlyRecipe::to_json() const {
  return write_recipe(*this, kWeightRecipeVersion);
}

WeightOnlyRecipe WeightOnlyRecipe::from_json(const std::string& text) {
  WeightOnlyRecipe recipe = four_bits();
  read_recipe(text, recipe, kWeightRecipeVersion);
  return recipe;
}

Scheme WeightOnlyRecipe::scheme() const {
  if (bits == 8) return Recipe::x86_int8().weight.scheme;
  Scheme scheme{.bits = 4, .granularity = PerGroup{group}};
  if (!affine) {
    scheme.is_signed = true;
    scheme.mapping = Mapping::symmetric;
    scheme.range = Range::restricted;
  }
  return scheme;
}

void WeightOnlyRecipe::validate() const {
  if (bits != 8 && bits != 4) fail(kQuantizeWeightsWhere, "expected bits 8 or 4, got ", bits);
  if (bits == 4 && (group < 2 || group % 2 != 0))
    fail(kQuantizeWeightsWhere, "expected an even group, got ", group);
  if (bits == 8 && affine) fail(kQuantizeWeightsWhere, "expected affine with 4 bits only");
}

WeightOnlyRecipe weight_options(const Recipe& recipe) {
  Recipe plain = Recipe::weight_only();
  plain.weight.scheme = recipe.weight.scheme;
  plain.skip_modules = recipe.skip_modules;
  if (!(recipe == plain)) {
    fail(kQuantizeWeightsWhere,
         "expected a recipe of weight_only with weight.scheme and skip_modules alone, got one of ",
         to_string(recipe.backend), recipe.backend == Backend::weight_only ? " with other fields" : "");
  }
  const Scheme& scheme = recipe.weight.scheme;
  WeightOnlyRecipe options{.skip_modules = recipe.skip_modules};
  if (const auto* group = std::get_if<PerGroup>(&scheme.granularity)) {
    options.bits = 4;
    options.group = group->size;
    options.affine = scheme.mapping == Mapping::affine;
  }
  if (!(scheme == options.scheme())) {
    fail(kQuantizeWeightsWhere,
         "expected weights s8 symmetric restricted per channel 0, s4 symmetric restricted per group or u4 "
         "affine "
         "per group, got ",
         scheme.to_string());
  }
  options.validate();
  return options;
}

std::shared_ptr<graph::GraphModule> quantize_weights(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const WeightOnlyRecipe& options,
                                                     graph::PassReport* report) {
  options.validate();
  const std::string done = "reads weights of " + std::to_string(options.bits) + " bits";
  std::vector<std::string> ops = {"aten::linear"};
  if (options.embeddings) ops.emplace_back("aten::embedding");
  WeightCoder coder(
      [&](const std::string& name, const at::Tensor& values) { return codes_of(name, values, options); });
  return rewrite_layers(captured,
                        {.where = kQuantizeWeightsWhere,
                         .pass = "quantize_weights",
                         .wanted = "linear layer or embedding",
                         .done = done.c_str(),
                         .ops = ops,
                         .skip_modules = options.skip_modules,
                         .products = true,
                         .refusal = coding_obstacle,
                         .rewrite = [&](Graph& graph, Node* layer) { coder.rewrite(graph, layer); }},
                        report);
}

}  // namespace ulp::quant
