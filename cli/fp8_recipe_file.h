// --fp8-recipe, which `ulp train` and `ulp memory` have.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/fp8/fp8_recipe.h"

namespace ulp::cli {

void add_fp8_recipe_flag(CLI::App& command, std::string& file);

/// Throws CLI::ValidationError for a file beside a precision without fp8.
void check_fp8_recipe_flag(const std::string& file, const amp::PrecisionName& precision);

/// What an fp8 precision computes with: the file's recipe, or without a file the precision's own; nothing for
/// other precisions.
/// Throws FileError for a file that is no recipe, or one of another precision.
std::optional<amp::Fp8Recipe> read_fp8_recipe(const std::string& file, const amp::PrecisionName& precision);

}  // namespace ulp::cli
