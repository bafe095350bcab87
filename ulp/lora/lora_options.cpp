#include "ulp/lora/lora_options.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/base/recipe_file.h"

namespace ulp::lora {

namespace {

constexpr const char* kLoraOptionsWhere = "lora.LoraOptions";
constexpr int kLoraOptionsVersion = 1;

}  // namespace

double LoraOptions::scaling() const {
  const auto r = static_cast<double>(rank);
  return alpha / (use_rslora ? std::sqrt(r) : r);
}

void LoraOptions::visit_fields(FieldVisitor& visit) {
  visit({.name = "rank", .help = "Rows of A and columns of B", .min = 1, .max = kLargestRank, .flag = "lora"},
        rank);
  visit({.name = "alpha",
         .help = "The adapter is multiplied by alpha / rank",
         .min = 0,
         .max = std::numeric_limits<float>::max(),
         .above_min = true,
         .flag = "lora-alpha"},
        alpha);
  visit({.name = "dropout",
         .help = "Share of an adapter's inputs that are left out while it trains",
         .min = 0,
         .max = 1,
         .below_max = true,
         .flag = "lora-dropout"},
        dropout);
  visit({.name = "use_rslora", .help = "Multiply by alpha / sqrt(rank)", .flag = "lora-rslora"}, use_rslora);
  visit({.name = "target_modules",
         .help = "Modules that get adapters, by the end of their paths (q_proj,v_proj), or all-linear",
         .flag = "lora-targets"},
        target_modules);
  visit({.name = "base", .help = "How the frozen weights of linear layers are kept", .flag = "lora-base"},
        base);
  visit({.name = "group",
         .help = "int4: neighbours in a row that share a scale; even, or -1: the whole row",
         .min = -1,
         .flag = "lora-group"},
        group);
  visit({.name = "double_quant",
         .help = "nf4: the scales of blocks are codes of 8 bits themselves",
         .flag = "lora-double-quant"},
        double_quant);
  visit({.name = "skip_modules",
         .help =
             "Module paths whose weights are kept in 16 bits beside codes; '*' matches any run of characters",
         .flag = "lora-skip"},
        skip_modules);
}

void LoraOptions::validate() const {
  check_limits(kLoraOptionsWhere, *this);
  if (group != -1 && (group < 2 || group % 2 != 0))
    fail(kLoraOptionsWhere, "expected group to be even, or -1, got ", group);
  if (double_quant && base != LoraBase::nf4)
    fail(kLoraOptionsWhere, "expected double_quant with base nf4 only, got ", enum_name(base));
  if (target_modules.empty())
    fail(kLoraOptionsWhere, "expected target_modules to name modules, or all-linear, got none");
  const auto is_empty = [](const std::string& name) { return name.empty(); };
  if (std::ranges::any_of(target_modules, is_empty))
    fail(kLoraOptionsWhere, "expected target_modules to name modules, got an empty name");
  if (target_modules.size() > 1 && std::ranges::find(target_modules, "all-linear") != target_modules.end())
    fail(kLoraOptionsWhere, "expected all-linear alone in target_modules, got names beside it");
}

std::string LoraOptions::to_json() const {
  return write_recipe(*this, kLoraOptionsVersion);
}

LoraOptions LoraOptions::from_json(const std::string& text) {
  LoraOptions options;
  read_recipe(text, options, kLoraOptionsVersion);
  return options;
}

bool is_target(const std::vector<std::string>& target_modules, std::string_view path) {
  return std::ranges::any_of(target_modules, [&](const std::string& name) {
    return path == name ||
           (path.ends_with(name) && path.size() > name.size() && path[path.size() - name.size() - 1] == '.');
  });
}

}  // namespace ulp::lora
