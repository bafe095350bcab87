// JSON of described fields (fields.h): one writer and one reader for every options struct and every step.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"

namespace ulp {

/// Every field, in the order of nlohmann::json (by name). JSON has no NaN and no infinity: they become null.
ULP_API nlohmann::json fields_to_json(FunctionRef<void(FieldVisitor&)> fields);

template <HasFields Options>
nlohmann::json fields_to_json(const Options& options) {
  return fields_to_json([&](FieldVisitor& v) { const_cast<Options&>(options).visit_fields(v); });
}

/// What a reader says of a value: `text` is "expected a whole number in 'scheme.bits', got \"8\"". Readers
/// throw it; callers word it as the error of their file.
struct FieldProblem {
  std::string text;
};

/// Reads the fields that `json` has into a struct; the others keep their values. Null makes an optional field
/// absent. Names in `also` are let pass. Throws FieldProblem for a field nobody knows, a value of another
/// kind, a number outside the limits of its type, or (with `limits`) outside those of its description; the
/// struct is then half read. `path` stands before names in messages as it is: "tensors[3].".
ULP_API void fields_from_json(const nlohmann::json& json, const std::string& path,
                              FunctionRef<void(FieldVisitor&)> fields, std::span<const char* const> also = {},
                              bool limits = false);

template <HasFields Options>
void fields_from_json(const nlohmann::json& json, Options& options, const std::string& path = {},
                      std::span<const char* const> also = {}, bool limits = false) {
  fields_from_json(
      json, path, [&](FieldVisitor& v) { options.visit_fields(v); }, also, limits);
}

/// What of `json` differs from `plain`, inside objects, too; an empty object where nothing does.
ULP_API nlohmann::json json_difference(const nlohmann::json& json, const nlohmann::json& plain);

/// The fields whose values are not those of a default-constructed struct, inside groups, too.
template <HasFields Options>
nlohmann::json changed_fields_to_json(const Options& options) {
  return json_difference(fields_to_json(options), fields_to_json(Options{}));
}

/// A value as messages show it: scalars as they are, short; objects and arrays by their kind alone.
ULP_API std::string shown(const nlohmann::json& value);

}  // namespace ulp
