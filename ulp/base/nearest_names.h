// Names that are like one that is not known, for messages: operators, modules, words of flags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/export.h"

namespace ulp {

/// The three of `known` that the fewest changed letters make of `name`, the nearest first: "aten::cumsum, aten::cumprod, aten::sum".
/// Capitals count as small letters; what is before "::" counts nothing. All of `known` where these are three or fewer.
ULP_API std::string nearest_names(std::string_view name, std::vector<std::string_view> known);

}  // namespace ulp
