#include "ulp/base/parse_json.h"

#include <string>

namespace ulp {

namespace {

using Json = nlohmann::json;

/// The number is free in nlohmann's lists.
class TooLarge final : public Json::exception {
 public:
  explicit TooLarge(const std::string& what) : exception(590, what.c_str()) {}
};

}  // namespace

Json parse_json(std::string_view text) {
  size_t values = 0;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxJsonDepth)
      throw TooLarge("nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    if (++values > 2 * kMaxJsonValues)
      throw TooLarge("more than " + std::to_string(kMaxJsonValues) + " values");
    return true;
  };
  return Json::parse(text.begin(), text.end(), watch);
}

Json parse_json_or_discarded(std::string_view text) {
  try {
    return parse_json(text);
  } catch (const Json::exception&) {
    return Json(Json::value_t::discarded);
  }
}

}  // namespace ulp
