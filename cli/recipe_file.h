// Texts and recipes in files, and what flags change of recipes.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"

namespace ulp::cli {

/// Throws FileError where the file cannot be read.
std::string read_text(const std::string& path);
/// Writes the file in one step; an empty path is none.
void write_text(const std::string& path, const std::string& text);

/// Throws FileError, which says where it stops to be JSON, for a recipe that is none.
void expect_json(const std::string& path, const std::string& text);

/// The recipe of a file. Throws FileError, which names the file, where it cannot be read or is no such recipe.
template <typename Recipe>
Recipe read_recipe(const std::string& path) {
  const std::string text = read_text(path);
  expect_json(path, text);
  try {
    Recipe recipe = Recipe::from_json(text);
    recipe.validate();
    return recipe;
  } catch (const Error& error) {
    fail_file("cli.read_recipe", "in the recipe '", path, "': ", error.what());
  }
}

/// Puts the fields that flags gave over those of the recipe. Throws CLI::ValidationError for one that does not fit.
template <typename Recipe>
void put_over(const nlohmann::json& given, Recipe& recipe) {
  if (given.empty()) return;
  nlohmann::json fields = fields_to_json(recipe);
  fields.merge_patch(given);
  try {
    fields_from_json(fields, recipe);
  } catch (const FieldProblem& problem) {
    throw CLI::ValidationError(problem.text);
  }
}

}  // namespace ulp::cli
