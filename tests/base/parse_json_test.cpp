#include "ulp/base/parse_json.h"

#include <gtest/gtest.h>

#include <string>

namespace {

std::string nested(int levels) {
  return std::string(static_cast<size_t>(levels), '[') + std::string(static_cast<size_t>(levels), ']');
}

TEST(ParseJson, ReadsWhatIsJson) {
  EXPECT_EQ(ulp::parse_json(R"({"a": [1, {"b": null}], "c": 2.5})").dump(),
            R"({"a":[1,{"b":null}],"c":2.5})");
  EXPECT_THROW(ulp::parse_json("{"), nlohmann::json::exception);
  EXPECT_TRUE(ulp::parse_json_or_discarded("{").is_discarded());
}

TEST(ParseJson, DepthHasALimit) {
  EXPECT_TRUE(ulp::parse_json(nested(ulp::kMaxJsonDepth)).is_array());
  EXPECT_THROW(ulp::parse_json(nested(ulp::kMaxJsonDepth + 2)), nlohmann::json::exception);
  EXPECT_THROW(ulp::parse_json(std::string(1000000, '[')), nlohmann::json::exception);
  EXPECT_TRUE(ulp::parse_json_or_discarded(std::string(1000000, '[')).is_discarded());
}

TEST(ParseJson, TheNumberOfValuesHasALimit) {
  std::string many = "[0";
  for (size_t i = 0; i < 2 * ulp::kMaxJsonValues; ++i) many += ",0";
  EXPECT_THROW(ulp::parse_json(many + ']'), nlohmann::json::exception);
}

/// Work grows with the text: what is quadratic does not end here within a test's time.
TEST(ParseJson, ManyChildrenOfOneParentAreReadInTime) {
  std::string many = "[{}";
  for (size_t i = 0; i < ulp::kMaxJsonValues - 2; ++i) many += ",{}";
  EXPECT_EQ(ulp::parse_json(many + ']').size(), ulp::kMaxJsonValues - 1);
}

}  // namespace
