#include "ulp/io/checkpoint.h"

#include <torch/types.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/io/optimizer_state.h"
#include "ulp/io/stored_fields.h"

namespace ulp::io {

namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr const char* kVersionKey = "ulp.checkpoint";
constexpr const char* kRunKey = "ulp.run";
constexpr const char* kOptimizerKey = "ulp.optimizer";
constexpr const char* kConfigKey = "ulp.config";
constexpr const char* kRandomName = "random.cpu";

void check_finite(const char* part, const std::map<std::string, double>& values) {
  for (const auto& [name, value] : values) {
    if (!std::isfinite(value))
      fail("io.save_checkpoint", "expected a finite ", part, " value ", name, ", got ", value);
  }
}

void check_count(const char* name, int64_t value) {
  if (value < 0) fail("io.save_checkpoint", "expected ", name, " >= 0, got ", value);
}

void check_version(const Metadata& metadata, const std::string& source) {
  const auto found = metadata.find(kVersionKey);
  if (found == metadata.end())
    fail_file(kLoadCheckpointWhere, "'", source, "' is a safetensors file, but not a checkpoint");
  const std::string& version = found->second;
  const bool number = !version.empty() && version.size() < 9 &&
                      version.find_first_not_of("0123456789") == std::string::npos && version != "0";
  if (!number)
    fail_file(kLoadCheckpointWhere, "'", source, "' has an unreadable checkpoint version '",
              version.substr(0, 20), "'");
  if (std::stoi(version) > kVersion) {
    fail_file(kLoadCheckpointWhere, "'", source, "' has checkpoint version ", version,
              ", this program reads up to ", kVersion, "; a newer ulp is needed");
  }
}

json read_run(const Metadata& metadata, const std::string& source) {
  const auto found = metadata.find(kRunKey);
  if (found == metadata.end()) fail_file(kLoadCheckpointWhere, "'", source, "' has no entry '", kRunKey, "'");
  try {
    return parse_json(found->second);
  } catch (const json::exception& error) {
    fail_file(kLoadCheckpointWhere, "'", kRunKey, "' in '", source, "' is not readable: ", error.what());
  }
}

void read_counts(const json& run, int64_t& step, int64_t& epoch) {
  const auto counts = [&](auto&& field) {
    field(count_of("step", /*first=*/0), step);
    field(count_of("epoch", /*first=*/0), epoch);
  };
  read_stored(run, "", counts, {"scaler", "schedule", "loader"});
}

std::string text_or_empty(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string() : found->second;
}

/// The tensors whose names start with the prefix, without it.
NamedTensors part_of(const TensorFile& file, const std::string& prefix) {
  NamedTensors part;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.compare(0, prefix.size(), prefix) == 0) part.emplace_back(name.substr(prefix.size()), tensor);
  }
  return part;
}

/// A generator takes any bytes of the right number for its state, so damage must be seen before.
at::Tensor check_random_state(const TensorFile& file, const std::string& source) {
  const at::Tensor* stored = file.find(kRandomName);
  if (stored == nullptr) fail_file(kLoadCheckpointWhere, "'", source, "' holds no random state");
  const at::Tensor present = at::detail::getDefaultCPUGenerator().get_state();
  if (stored->scalar_type() != at::kByte || stored->sizes() != present.sizes()) {
    fail_file(kLoadCheckpointWhere, "the random state in '", source, "' is of another LibTorch: expected ",
              present.sizes(), ", got ", stored->sizes());
  }
  at::Generator trial = at::detail::createCPUGenerator();
  try {
    trial.set_state(*stored);
  } catch (const c10::Error& error) {
    fail_file(kLoadCheckpointWhere, "the random state in '", source,
              "' is damaged: ", error.what_without_backtrace());
  }
  return *stored;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const CheckpointParts& parts) {
  check_finite("scaler", parts.scaler);
  check_finite("schedule", parts.schedule);
  check_count("step", parts.step);
  check_count("epoch", parts.epoch);
  NamedTensors tensors;
  Metadata metadata{{kVersionKey, std::to_string(kVersion)}};
  if (parts.model != nullptr) {
    for (auto& [name, tensor] : named_state(*parts.model)) tensors.emplace_back("model." + name, tensor);
  }
  if (parts.optimizer != nullptr) {
    metadata[kOptimizerKey] = export_optimizer(*parts.optimizer, "optimizer.", tensors);
  }
  for (const auto& [name, tensor] : parts.extra) tensors.emplace_back("extra." + name, tensor);
  if (parts.random_state) tensors.emplace_back(kRandomName, at::detail::getDefaultCPUGenerator().get_state());
  metadata[kRunKey] = json{
      {"step", parts.step},
      {"epoch", parts.epoch},
      {"scaler", parts.scaler},
      {"schedule", parts.schedule},
      {"loader",
       parts.loader}}.dump();
  if (!parts.config.empty()) metadata[kConfigKey] = parts.config;
  save_tensors(path, tensors, metadata);
}

void load_checkpoint(const std::filesystem::path& path, CheckpointParts& parts) {
  const std::string source = path.string();
  check_version(load_metadata(path), source);
  const TensorFile file = load_tensors(path);
  const json run = read_run(file.metadata, source);
  CheckpointParts loaded = parts;
  try {
    read_counts(run, loaded.step, loaded.epoch);
    loaded.scaler = run.at("scaler").get<std::map<std::string, double>>();
    loaded.schedule = run.value("schedule", std::map<std::string, double>());
    run.at("loader").get_to(loaded.loader);
  } catch (const json::exception& error) {
    fail_file(kLoadCheckpointWhere, "'", kRunKey, "' in '", source, "' is not readable: ", error.what());
  } catch (const FieldProblem& problem) {
    fail_file(kLoadCheckpointWhere, "'", kRunKey, "' in '", source, "' is not readable: ", problem.text);
  }
  loaded.config = text_or_empty(file.metadata, kConfigKey);
  loaded.extra = part_of(file, "extra.");
  at::Tensor random;
  if (parts.random_state) random = check_random_state(file, source);
  std::function<void()> apply_optimizer = [] {};
  if (parts.optimizer != nullptr) {
    const auto text = file.metadata.find(kOptimizerKey);
    if (text == file.metadata.end())
      fail_file(kLoadCheckpointWhere, "'", source, "' holds no optimizer state");
    apply_optimizer = import_optimizer(*parts.optimizer, text->second, "optimizer.", file, source);
  }
  if (parts.model != nullptr) assign_state(*parts.model, part_of(file, "model."), /*strict=*/true, source);
  apply_optimizer();
  if (at::Generator generator = at::detail::getDefaultCPUGenerator(); random.defined()) {
    generator.set_state(random);
  }
  parts = std::move(loaded);
}

CheckpointInfo read_checkpoint_info(const std::filesystem::path& path) {
  const Metadata metadata = load_metadata(path);
  check_version(metadata, path.string());
  const json run = read_run(metadata, path.string());
  CheckpointInfo info;
  try {
    read_counts(run, info.step, info.epoch);
    const std::string optimizer = text_or_empty(metadata, kOptimizerKey);
    if (!optimizer.empty()) parse_json(optimizer).at("kind").get_to(info.optimizer);
  } catch (const json::exception& error) {
    fail_file(kLoadCheckpointWhere, "the metadata of '", path.string(), "' is not readable: ", error.what());
  } catch (const FieldProblem& problem) {
    fail_file(kLoadCheckpointWhere, "the metadata of '", path.string(), "' is not readable: ", problem.text);
  }
  info.config = text_or_empty(metadata, kConfigKey);
  return info;
}

}  // namespace ulp::io
