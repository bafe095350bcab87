#include "ulp/quant/any_recipe.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"

namespace ulp::quant {
namespace {

constexpr size_t kKinds = std::variant_size_v<AnyRecipe>;

template <size_t... I>
constexpr std::array<const char*, kKinds> types(std::index_sequence<I...>) {
  return {std::variant_alternative_t<I, AnyRecipe>::kType...};
}
constexpr std::array<const char*, kKinds> kTypes = types(std::make_index_sequence<kKinds>{});

/// Reads the recipe of this type, one alternative after the other.
template <size_t I = 0>
AnyRecipe read(const std::string& type, const std::string& text) {
  if constexpr (I == kKinds) {
    fail_file("quant.AnyRecipe", "expected a JSON object with a \"type\" of ", one_of(kTypes), ", got '",
              type, "'");
  } else {
    if (type == kTypes[I]) return std::variant_alternative_t<I, AnyRecipe>::from_json(text);
    return read<I + 1>(type, text);
  }
}

}  // namespace

std::string to_json(const AnyRecipe& recipe) {
  return std::visit([](const auto& one) { return one.to_json(); }, recipe);
}

AnyRecipe any_recipe_from_json(const std::string& text) {
  const nlohmann::json in = parse_json_or_discarded(text);
  const bool typed = in.is_object() && in.contains("type") && in["type"].is_string();
  return read(typed ? in["type"].get<std::string>() : "", text);
}

const char* type_of(const AnyRecipe& recipe) {
  return kTypes[recipe.index()];
}

void validate(const AnyRecipe& recipe) {
  std::visit([](const auto& one) { one.validate(); }, recipe);
}

Recipe* tensors_of(AnyRecipe& recipe) {
  if (auto* plain = std::get_if<Recipe>(&recipe)) return plain;
  auto* trained = std::get_if<QatRecipe>(&recipe);
  return trained != nullptr ? &trained->tensors : nullptr;
}

const Recipe* tensors_of(const AnyRecipe& recipe) {
  return tensors_of(const_cast<AnyRecipe&>(recipe));
}

}  // namespace ulp::quant
