// The recipe of weight-only quantization: fields, JSON, and what it means for one weight.
#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/glob.h"
#include "ulp/base/recipe_file.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::quant {
namespace {

constexpr const char* kWeightRecipeWhere = "quant.quantize_weights";
constexpr int kWeightRecipeVersion = 3;

WeightOnlyRecipe without_exceptions(const WeightOnlyRecipe& recipe) {
  WeightOnlyRecipe own = recipe;
  own.overrides.clear();
  own.search.reset();
  return own;
}

/// With what the recipe's bits and method leave no meaning: another override may give it one again.
WeightOnlyRecipe overridden(WeightOnlyRecipe recipe, const WeightOverride& one) {
  recipe.bits = one.bits.value_or(recipe.bits);
  recipe.group = one.group.value_or(recipe.group);
  recipe.affine = one.affine.value_or(recipe.affine);
  recipe.method = one.method.value_or(recipe.method);
  return recipe;
}

WeightOnlyRecipe without_meaningless(WeightOnlyRecipe recipe) {
  if (recipe.bits == 8) recipe.affine = false;
  if (recipe.method != WeightMethod::gptq) recipe.act_order = recipe.static_groups = false;
  return recipe;
}

void validate_search(const WeightOnlyRecipe& recipe) {
  recipe.search->validate();
  if (!recipe.overrides.empty())
    fail(kWeightRecipeWhere, "expected no overrides beside a search, which decides them, got ",
         recipe.overrides.size());
  for (const WeightFormat& format : recipe.search->formats()) {
    WeightOnlyRecipe own = without_exceptions(recipe);
    own.act_order = own.static_groups = false;
    own.bits = format.bits;
    own.group = format.group;
    own.affine = format.affine;
    try {
      own.validate();
    } catch (const Error& error) {
      fail(kWeightRecipeWhere, "in the candidate ", format.text(), ": ", error.what());
    }
  }
}

}  // namespace

void WeightOverride::visit_fields(FieldVisitor& visit) {
  visit({.name = "weight",
         .help = "Name of the weight, or path of a module that has it; '*' matches any run of characters"},
        weight);
  visit({.name = "bits", .help = "As the recipe's", .min = 2, .max = 8, .absent = ""}, bits);
  visit({.name = "group", .help = "As the recipe's", .min = -1, .absent = ""}, group);
  visit({.name = "affine", .help = "As the recipe's", .absent = ""}, affine);
  visit({.name = "method", .help = "As the recipe's", .absent = ""}, method);
}

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
  visit({"group", "2 to 4 bits: neighbours in a row that share a scale; even, or -1: the whole row", -1,
         1 << 20},
        group);
  visit({"affine", "2 to 4 bits: a zero point for each group"}, affine);
  visit({"embeddings", "Embeddings, too, not linear layers alone; they keep 4 bits where layers have fewer"},
        embeddings);
  visit({"skip_modules", "Module paths left in float; '*' matches any run of characters"}, skip_modules);
  visit({"method", "The method that decides the codes of linear layers; gptq and awq need data"}, method);
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
  visit({"rotate", "The residual stream of a transformer is rotated first, which spreads outliers"}, rotate);
  visit({"overrides", "Exceptions for some weights"}, overrides, WeightOverride{});
  visit({.name = "search", .help = "A search for the bits and the method of each weight", .absent = ""},
        search);
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
  if (bits != 8 && (bits < 2 || bits > 4)) fail(kWeightRecipeWhere, "expected bits 8, 4, 3 or 2, got ", bits);
  if (bits != 8 && group != -1 && (group < 2 || group % 2 != 0))
    fail(kWeightRecipeWhere, "expected an even group, or -1, got ", group);
  if (bits == 8 && affine) fail(kWeightRecipeWhere, "expected affine with 4 bits or fewer only");
  if ((act_order || static_groups) && !takes(WeightMethod::gptq))
    fail(kWeightRecipeWhere, "expected act_order and static_groups with the method gptq only, got ",
         enum_name(method));
  check_limits(kWeightRecipeWhere, *this);
  for (size_t i = 0; i < overrides.size(); ++i) {
    const WeightOverride& one = overrides[i];
    const std::string name = "overrides[" + std::to_string(i) + "]";
    if (one.weight.empty()) fail(kWeightRecipeWhere, "expected ", name, ".weight to name weights, got ''");
    WeightOnlyRecipe own = without_meaningless(overridden(without_exceptions(*this), one));
    if (one.affine) own.affine = *one.affine;
    try {
      own.validate();
    } catch (const Error& error) {
      fail(kWeightRecipeWhere, "in ", name, " of '", one.weight, "': ", error.what());
    }
  }
  if (search) validate_search(*this);
}

WeightOnlyRecipe WeightOnlyRecipe::of_weight(const std::string& name) const {
  WeightOnlyRecipe own = without_exceptions(*this);
  for (const WeightOverride& one : overrides) {
    if (matches_path(one.weight, name)) own = overridden(own, one);
  }
  return without_meaningless(own);
}

bool WeightOnlyRecipe::takes(WeightMethod wanted) const {
  if (search) {
    const auto is = [&](const WeightFormat& format) { return format.method == wanted; };
    return std::ranges::any_of(search->formats(), is);
  }
  const auto names = [&](const WeightOverride& one) { return one.method == wanted; };
  return method == wanted || std::ranges::any_of(overrides, names);
}

bool WeightOnlyRecipe::needs_data() const {
  return search.has_value() || takes(WeightMethod::gptq) || takes(WeightMethod::awq);
}

WeightOnlyRecipe weight_options(const Recipe& recipe) {
  Recipe plain = Recipe::weight_only();
  plain.weight.scheme = recipe.weight.scheme;
  plain.skip_modules = recipe.skip_modules;
  if (!(recipe == plain)) {
    fail(kWeightRecipeWhere,
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
        kWeightRecipeWhere,
        "expected weights s8 symmetric restricted per channel 0, and per group or per channel 0 s4 symmetric "
        "restricted, s3 or s2 symmetric or u4, u3 or u2 affine, got ",
        scheme.to_string());
  }
  options.validate();
  return options;
}

}  // namespace ulp::quant
