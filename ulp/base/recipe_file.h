// Recipes as JSON files: {"type", "version", fields}.
#pragma once

#include <span>
#include <string>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"

namespace ulp {

/// The text of a recipe file of this type and version.
ULP_API std::string recipe_text(const char* type, int version, FunctionRef<void(FieldVisitor&)> fields);
/// Reads the fields that a file has; the others keep their values, and names in `also` are passed over.
/// Throws FileError for text that is no such JSON, an unknown field, a value of another kind, or a newer
/// version.
ULP_API void parse_recipe(const std::string& text, const char* type, int newest,
                          FunctionRef<void(FieldVisitor&)> fields, std::span<const char* const> also = {});

template <typename AnyKind>
std::string write_recipe(const AnyKind& recipe, int version) {
  AnyKind copy = recipe;
  return recipe_text(AnyKind::kType, version, [&](FieldVisitor& visit) { copy.visit_fields(visit); });
}

/// Reads, then validates.
template <typename AnyKind>
void read_recipe(const std::string& text, AnyKind& recipe, int newest,
                 std::span<const char* const> also = {}) {
  parse_recipe(
      text, AnyKind::kType, newest, [&](FieldVisitor& visit) { recipe.visit_fields(visit); }, also);
  recipe.validate();
}

}  // namespace ulp
