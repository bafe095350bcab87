#include "ulp/prune/storage/deep_compression.h"

#include "ulp/base/error.h"
#include "ulp/base/recipe_file.h"
#include "ulp/quant/recipe.h"

namespace ulp::prune {
namespace {

constexpr const char* kDeepCompressWhere = "prune.deep_compress";
constexpr int kDeepCompressionVersion = 1;

}  // namespace

DeepCompression DeepCompression::lenet_300_100(const std::vector<std::string>& layers) {
  const std::vector<double> kept = {0.08, 0.09, 0.26};
  if (layers.size() != kept.size())
    fail(kDeepCompressWhere, "expected the paths of ", kept.size(), " layers, got ", layers.size());
  DeepCompression recipe;
  for (size_t i = 0; i < kept.size(); ++i) recipe.layers.push_back({layers[i], 1 - kept[i], std::nullopt});
  return recipe;
}

double DeepCompression::amount_of(const std::string& parameter, int64_t dimensions) const {
  double found = dimensions >= 2 ? amount : 0;
  for (const LayerCompression& rule : layers) {
    const bool meant =
        dimensions >= 2 ? quant::matches_module(rule.layer, parameter) : rule.layer == parameter;
    if (meant && rule.amount) found = *rule.amount;
  }
  return found;
}

Recipe DeepCompression::mask_recipe() const {
  Recipe recipe{.scope = Scope::layer, .amount = Amount::share(amount, AmountOf::all)};
  for (const LayerCompression& rule : layers) {
    if (rule.amount) recipe.overrides.push_back({rule.layer, Amount::share(*rule.amount, AmountOf::all)});
  }
  return recipe;
}

ShareOptions DeepCompression::share_options() const {
  ShareOptions options{.kmeans = sharing, .layers = {}};
  for (const LayerCompression& rule : layers) {
    if (rule.bits) options.layers.push_back({rule.layer, *rule.bits});
  }
  return options;
}

CodeOptions DeepCompression::code_options() const {
  return {.coder = coder, .gap_bits = gap_bits};
}

void LayerCompression::visit_fields(FieldVisitor& visit) {
  visit({"layer", "Path of a module or name of a parameter; '*' matches any run of characters"}, layer);
  visit({.name = "amount",
         .help = "Share of the weights that is pruned",
         .min = 0,
         .max = 1,
         .below_max = true,
         .absent = ""},
        amount);
  visit({.name = "bits",
         .help = "Bits of a shared weight's code; 0: not shared",
         .min = 0,
         .max = 8,
         .absent = ""},
        bits);
}

void DeepCompression::visit_fields(FieldVisitor& visit) {
  visit({.name = "amount",
         .help = "Share of each layer's weights that is pruned",
         .min = 0,
         .max = 1,
         .below_max = true},
        amount);
  visit({"sharing", "How weights share values"}, sharing);
  visit({"layers", "Exceptions for some layers"}, layers, LayerCompression{});
  visit({"coder", "How codes become bytes"}, coder);
  visit({.name = "gap_bits",
         .help = "Bits of positions by gaps",
         .min = kFewestGapBits,
         .max = kMostGapBits,
         .absent = "",
         .unset = "the smallest"},
        gap_bits);
}

void DeepCompression::validate() const {
  check_limits(kDeepCompressWhere, *this);
}

std::string DeepCompression::to_json() const {
  return write_recipe(*this, kDeepCompressionVersion);
}

DeepCompression DeepCompression::from_json(const std::string& text) {
  DeepCompression recipe;
  read_recipe(text, recipe, kDeepCompressionVersion);
  return recipe;
}

CompressedModel deep_compress(const std::shared_ptr<graph::GraphModule>& pruned,
                              const DeepCompression& recipe, const std::filesystem::path& path,
                              const std::function<void(graph::GraphModule&)>& fine_tune) {
  recipe.validate();
  CompressedModel result;
  const auto shared = share_weights(pruned, recipe.share_options(), &result.report);
  if (fine_tune) fine_tune(*shared);
  result.module = bake_shared(shared);
  result.accounting = save_compressed(path, *result.module, recipe.code_options());
  return result;
}

}  // namespace ulp::prune
