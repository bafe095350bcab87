// Patterns for names and for paths of modules: '*' is any run of characters, dots too.
#pragma once

#include <string_view>

#include "ulp/base/export.h"

namespace ulp {

/// True if the pattern matches the whole text.
ULP_API bool matches_pattern(std::string_view pattern, std::string_view text);

/// True if the pattern matches the module's path ("layer1.0.conv1") or that of a parent ("layer1").
ULP_API bool matches_path(std::string_view pattern, std::string_view path);

}  // namespace ulp
