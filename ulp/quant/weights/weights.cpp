#include "ulp/quant/weights/weights.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/base/recipe_file.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/weights/layer_rewrite.h"
#include "ulp/quant/weights/round_to_nearest.h"
#include "ulp/quant/weights/weight_coder.h"

namespace ulp::quant {
namespace {

using graph::Graph;
using graph::Node;

constexpr const char* kQuantizeWeightsWhere = "quant.quantize_weights";
constexpr int kWeightRecipeVersion = 2;

}  // namespace

WeightOnlyRecipe WeightOnlyRecipe::four_bits() {
  return {.bits = 4};
}

void WeightOnlyRecipe::visit_fields(FieldVisitor& visit) {
  visit({.name = "bits",
         .help = "8: a scale for each output channel; 4, 3 or 2: one for each group",
         .min = 2,
         .max = 8,
         .flag = "weight-bits"},
        bits);
  visit({"group", "2 to 4 bits: neighbours in a row that share a scale; even, or -1: the whole row", -1},
        group);
  visit({"affine", "2 to 4 bits: a zero point for each group"}, affine);
  visit({"embeddings", "Embeddings, too, not linear layers alone; they keep 4 bits where layers have fewer"},
        embeddings);
  visit({"skip_modules", "Module paths left in float; '*' matches any run of characters"}, skip_modules);
  visit({"method", "What decides the codes of linear layers; all but rtn need data"}, method);
  visit({"act_order", "gptq: columns of the largest second moments come first"}, act_order);
  visit({"static_groups", "gptq: scales are those of the weights before errors are made up for"},
        static_groups);
  visit({"damp", "gptq: share of the mean of the Hessian's diagonal that is added to it", 0, 1}, damp);
  visit({.name = "block",
         .help = "gptq: columns whose errors reach the others in one product",
         .min = 1,
         .flag = "gptq-block"},
        block);
  visit({.name = "clip",
         .help = "awq: ranges of groups are clipped where that lessens the error",
         .flag = "awq-clip"},
        clip);
  visit({"recompute", "gptq, awq: each layer's inputs are computed from the start: less memory, more time"},
        recompute);
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
  Scheme scheme{.bits = bits, .granularity = PerGroup{group}};
  if (group < 0) scheme.granularity = PerChannel{0};
  if (!affine) {
    scheme.is_signed = true;
    scheme.mapping = Mapping::symmetric;
    scheme.range = bits == 4 ? Range::restricted : Range::full;
  }
  return scheme;
}

void WeightOnlyRecipe::validate() const {
  if (bits != 8 && (bits < 2 || bits > 4))
    fail(kQuantizeWeightsWhere, "expected bits 8, 4, 3 or 2, got ", bits);
  if (bits != 8 && group != -1 && (group < 2 || group % 2 != 0))
    fail(kQuantizeWeightsWhere, "expected an even group, or -1, got ", group);
  if (bits == 8 && affine) fail(kQuantizeWeightsWhere, "expected affine with 4 bits or fewer only");
  if ((act_order || static_groups) && method != WeightMethod::gptq)
    fail(kQuantizeWeightsWhere, "expected act_order and static_groups with the method gptq only, got ",
         enum_name(method));
  check_limits(kQuantizeWeightsWhere, *this);
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
  if (scheme.per_channel() && scheme.bits < 8) {
    options.bits = scheme.bits;
    options.group = -1;
    options.affine = scheme.mapping == Mapping::affine;
  }
  if (const auto* group = std::get_if<PerGroup>(&scheme.granularity)) {
    options.bits = scheme.bits;
    options.group = group->size;
    options.affine = scheme.mapping == Mapping::affine;
  }
  if (!(scheme == options.scheme())) {
    fail(
        kQuantizeWeightsWhere,
        "expected weights s8 symmetric restricted per channel 0, and per group or per channel 0 s4 symmetric "
        "restricted, s3 or s2 symmetric or u4, u3 or u2 affine, got ",
        scheme.to_string());
  }
  options.validate();
  return options;
}

std::shared_ptr<graph::GraphModule> quantize_weights(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const WeightOnlyRecipe& options,
                                                     graph::PassReport* report) {
  options.validate();
  if (options.method != WeightMethod::rtn)
    fail(kQuantizeWeightsWhere, "expected calibration data for the method ", enum_name(options.method),
         ", got none");
  const WeightOnlyRecipe of_tables = table_recipe(options);
  LayerRewrite how = weights_rewrite(options);
  const std::shared_ptr<Graph> graph = layers_graph(captured, how);
  std::vector<std::string> refused;
  const Tables tables = tables_of(layers_of(*graph, how, refused));
  const auto own = [&](const Node& layer) -> const WeightOnlyRecipe& {
    return tables.contains(layer.arg("weight").value) ? of_tables : options;
  };
  const WeightOnlyRecipe* now = nullptr;
  WeightCoder coder(
      [&](const std::string& name, const at::Tensor& values) { return rounded_codes(name, values, *now); });
  how.remark = [&](const Node& layer) { return ' ' + std::to_string(own(layer).bits) + " bits"; };
  how.rewrite = [&](Graph& inside, Node* layer) {
    now = &own(*layer);
    coder.rewrite(inside, layer);
  };
  return rewrite_layers(graph, how, report);
}

}  // namespace ulp::quant
