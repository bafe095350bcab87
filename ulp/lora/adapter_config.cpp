#include "ulp/lora/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"

namespace ulp::lora {

namespace {

using nlohmann::json;

constexpr const char* kAdapterConfigWhere = "lora.AdapterConfig";

/// Settings that change nothing in what an adapter computes, whatever they hold.
constexpr std::array<std::string_view, 12> kHarmless = {
    "auto_mapping",  "peft_version",     "revision",       "inference_mode",
    "megatron_core", "layers_pattern",   "runtime_config", "qalora_group_size",
    "eva_config",    "base_model_class", "parent_library", "ensure_weight_tying"};
/// Those that are read.
constexpr std::array<std::string_view, 13> kRead = {
    "peft_type",      "task_type",      "base_model_name_or_path", "r",
    "lora_alpha",     "lora_dropout",   "target_modules",          "use_rslora",
    "bias",           "fan_in_fan_out", "init_lora_weights",       "layers_to_transform",
    "exclude_modules"};

template <size_t N>
bool is_in(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// null, false, {}, [] and "": the setting is not used.
bool is_unused(const json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         ((value.is_structured() || value.is_string()) && value.size() == 0) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

/// One file as it is read.
class ConfigReader {
 public:
  ConfigReader(const json& config, const std::string& source) : config_(config), source_(source) {}

  AdapterConfig read() const {
    if (!config_.is_object()) refuse("expected an object", "another value");
    expect_kind();
    for (const auto& [name, value] : config_.items()) {
      if (is_in(kHarmless, name) || is_in(kRead, name) || is_unused(value)) continue;
      refuse("expected no " + name + ", which would compute something else", value.dump());
    }
    expect_initial_weights();
    AdapterConfig made;
    made.options.rank = whole("r", 8);
    made.options.alpha = number("lora_alpha", 8);
    made.options.dropout = number("lora_dropout", 0);
    made.options.use_rslora = flag("use_rslora");
    made.fan_in_fan_out = flag("fan_in_fan_out");
    made.base_model = text("base_model_name_or_path");
    made.task_type = text("task_type");
    made.all_targets = is_unused(get("layers_to_transform")) && is_unused(get("exclude_modules"));
    read_targets(made);
    check(made);
    return made;
  }

 private:
  [[noreturn]] void refuse(const std::string& expected, const std::string& got) const {
    fail_file(kAdapterConfigWhere, expected, " in '", source_, "', got ", got);
  }
  const json& get(const char* name) const {
    static const json none;
    const auto found = config_.find(name);
    return found == config_.end() ? none : *found;
  }
  int64_t whole(const char* name, int64_t otherwise) const {
    const json& value = get(name);
    if (value.is_null()) return otherwise;
    if (!value.is_number_integer()) refuse(std::string("expected a whole number for ") + name, value.dump());
    return value.get<int64_t>();
  }
  double number(const char* name, double otherwise) const {
    const json& value = get(name);
    if (value.is_null()) return otherwise;
    if (!value.is_number()) refuse(std::string("expected a number for ") + name, value.dump());
    return value.get<double>();
  }
  bool flag(const char* name) const {
    const json& value = get(name);
    if (value.is_null()) return false;
    if (!value.is_boolean()) refuse(std::string("expected true or false for ") + name, value.dump());
    return value.get<bool>();
  }
  std::string text(const char* name) const {
    const json& value = get(name);
    if (value.is_null()) return "";
    if (!value.is_string()) refuse(std::string("expected a text for ") + name, value.dump());
    return value.get<std::string>();
  }

  void expect_kind() const {
    if (const json& kind = get("peft_type"); kind != "LORA")
      refuse("expected an adapter of peft_type LORA", kind.is_null() ? "none" : kind.dump());
    if (const json& bias = get("bias"); !bias.is_null() && bias != "none")
      refuse("expected bias none, as trained biases are no part of a low-rank adapter", bias.dump());
  }

  /// PiSSA and its like train beside another base than the published one.
  void expect_initial_weights() const {
    const json& how = get("init_lora_weights");
    const bool plain =
        how.is_null() || how.is_boolean() || how == "gaussian" || how == "orthogonal" || how == "eva";
    if (!plain) refuse("expected init_lora_weights that leave the base as it is", how.dump());
  }

  void read_targets(AdapterConfig& made) const {
    const json& targets = get("target_modules");
    if (targets.is_null()) return;
    if (targets.is_string()) {
      made.target_pattern = targets.get<std::string>();
      return;
    }
    const auto is_name = [](const json& one) {
      return one.is_string() && !one.get_ref<const std::string&>().empty();
    };
    if (!targets.is_array() || !std::ranges::all_of(targets, is_name))
      refuse("expected target_modules as a text or a list of names", targets.dump());
    made.options.target_modules = targets.get<std::vector<std::string>>();
  }

  void check(const AdapterConfig& made) const {
    const LoraOptions& options = made.options;
    if (options.rank < 1 || options.rank > LoraOptions::kLargestRank)
      refuse("expected r of 1 or more", get("r").dump());
    if (!(options.alpha > 0) || !std::isfinite(options.alpha))
      refuse("expected a lora_alpha above 0", get("lora_alpha").dump());
    if (!(options.dropout >= 0 && options.dropout < 1))
      refuse("expected a lora_dropout in [0, 1)", get("lora_dropout").dump());
  }

  const json& config_;
  const std::string& source_;
};

}  // namespace

AdapterConfig AdapterConfig::from_json(const std::string& text, const std::string& source) {
  const json config = parse_json_or_discarded(text);
  if (config.is_discarded())
    fail_file(kAdapterConfigWhere, "expected JSON in '", source, "', got other text");
  return ConfigReader(config, source).read();
}

std::string AdapterConfig::to_json() const {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? json() : json(text); };
  json config = {{"peft_type", "LORA"},
                 {"task_type", text_or_null(task_type)},
                 {"base_model_name_or_path", text_or_null(base_model)},
                 {"revision", json()},
                 {"auto_mapping", json()},
                 {"inference_mode", true},
                 {"r", options.rank},
                 {"lora_alpha", options.alpha},
                 {"lora_dropout", options.dropout},
                 {"use_rslora", options.use_rslora},
                 {"target_modules", options.target_modules},
                 {"fan_in_fan_out", fan_in_fan_out},
                 {"bias", "none"},
                 {"modules_to_save", json()},
                 {"init_lora_weights", true},
                 {"layers_to_transform", json()},
                 {"layers_pattern", json()},
                 {"rank_pattern", json::object()},
                 {"alpha_pattern", json::object()}};
  if (!target_pattern.empty()) config["target_modules"] = target_pattern;
  // PEFT's fields are whole numbers where they can be.
  if (options.alpha == std::floor(options.alpha) && std::abs(options.alpha) < 1e15)
    config["lora_alpha"] = static_cast<int64_t>(options.alpha);
  return config.dump(2) + '\n';
}

}  // namespace ulp::lora
