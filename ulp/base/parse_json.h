// JSON from files that anyone may have written.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "ulp/base/export.h"

namespace ulp {

/// How deep objects and arrays may lie in each other: those who copy and print values recurse.
inline constexpr int kMaxJsonDepth = 64;
/// How many values a text may hold: one of two characters takes up to some 250 bytes of memory.
inline constexpr size_t kMaxJsonValues = size_t{1} << 19;

/// What is parsed of the text. Throws nlohmann::json::exception for text that is no JSON, deeper than
/// kMaxJsonDepth or of more than kMaxJsonValues values.
ULP_API nlohmann::json parse_json(std::string_view text);
/// The same; a discarded value where parse_json() throws.
ULP_API nlohmann::json parse_json_or_discarded(std::string_view text);

}  // namespace ulp
