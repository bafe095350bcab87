#include "ulp/base/recipe_file.h"

#include <string_view>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/base/parse_json.h"

namespace ulp {

using nlohmann::json;

std::string recipe_text(const char* type, int version, FunctionRef<void(FieldVisitor&)> fields) {
  json out = fields_to_json(fields);
  out["type"] = type;
  out["version"] = version;
  return out.dump(2);
}

void parse_recipe(const std::string& text, const char* type, int newest,
                  FunctionRef<void(FieldVisitor&)> fields, std::span<const char* const> also) {
  const std::string where(std::string_view(type).substr(std::string_view("ulp.").size()));
  const json in = parse_json_or_discarded(text);
  if (!in.is_object() || in.value("type", json()) != type) {
    fail_file(where.c_str(), "expected a JSON object with \"type\": \"", type, "\"");
  }
  const json version = in.value("version", json());
  if (!version.is_number_integer() || version < 1 || version > newest) {
    fail_file(where.c_str(), "expected a recipe of version 1 to ", newest, ", got ", shown(version));
  }
  std::vector<const char*> passed = {"type", "version"};
  passed.insert(passed.end(), also.begin(), also.end());
  try {
    fields_from_json(in, "", fields, passed, /*limits=*/true);
  } catch (const FieldProblem& problem) {
    fail_file(where.c_str(), problem.text);
  }
}

}  // namespace ulp
