#include "ulp/app/prune/prune_progress.h"

#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/io/checkpoint.h"

namespace ulp::app {

namespace {

constexpr const char* kRunPruneWhere = "app.run_prune";

/// The names of the fields that the objects do not share: "amount, training.epochs".
std::string different_fields(const nlohmann::json& one, const nlohmann::json& other,
                             const std::string& before = "") {
  std::string names;
  for (const auto& [name, value] : one.items()) {
    const auto found = other.find(name);
    if (found != other.end() && *found == value) continue;
    const bool inside = found != other.end() && value.is_object() && found->is_object();
    const std::string text = inside ? different_fields(value, *found, before + name + '.') : before + name;
    names += (names.empty() ? "" : ", ") + text;
  }
  return names;
}

}  // namespace

std::string describe(const PruneProgress& progress, const std::string& recipe, const graph::Graph& dense) {
  const nlohmann::json json = {
      {"recipe", nlohmann::json::parse(recipe)},
      {"training", progress.training},
      {"structure", nlohmann::json::parse(prune::structure_to_json(progress.structure, dense))}};
  return json.dump();
}

PruneProgress read_progress(const std::filesystem::path& path, const std::string& recipe,
                            const graph::Graph& dense) {
  const nlohmann::json config = parse_json_or_discarded(io::read_checkpoint_info(path).config);
  nlohmann::json json;
  if (config.is_object() && config.contains("task") && config["task"].is_string())
    json = parse_json_or_discarded(config["task"].get<std::string>());
  if (!json.is_object() || !json.contains("recipe") || !json["recipe"].is_object() ||
      !json.contains("training") || !json["training"].is_number_unsigned() || !json.contains("structure")) {
    fail_file(kRunPruneWhere, "expected a checkpoint of a run that prunes, got another one in '",
              path.string(), "'");
  }
  const auto expected = nlohmann::json::parse(recipe);
  if (json["recipe"] != expected) {
    fail(kRunPruneWhere, "expected a checkpoint of a run by the same recipe, got one in '", path.string(),
         "' that differs in ", different_fields(expected, json["recipe"]));
  }
  return {json["training"].get<int64_t>(), prune::structure_from_json(json["structure"].dump(), dense)};
}

}  // namespace ulp::app
