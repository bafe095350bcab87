#include "ulp/lora/adapter_file.h"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/base/nearest_names.h"
#include "ulp/base/read_file.h"
#include "ulp/io/safetensors.h"
#include "ulp/lora/add_adapters.h"

namespace ulp::lora {

namespace fs = std::filesystem;

namespace {

constexpr const char* kReadAdapterWhere = "lora.read_adapter";
constexpr const char* kLoadAdapterWhere = "lora.load_adapter";
constexpr const char* kSaveAdapterWhere = "lora.save_adapter";
constexpr const char* kConfigName = "adapter_config.json";
constexpr const char* kTensorsName = "adapter_model.safetensors";
constexpr std::string_view kFirst = "base_model.model.";
constexpr std::string_view kEndA = ".lora_A.weight", kEndB = ".lora_B.weight";
constexpr uintmax_t kMostConfigBytes = uintmax_t{1} << 24;
constexpr std::array<std::string_view, 4> kTrunks = {"model.", "transformer.", "bert.", "distilbert."};

/// A tensor of the file goes to its layer.
void take_tensor(const fs::path& file, const std::string& name, const at::Tensor& tensor, int64_t rank,
                 std::map<std::string, AdapterPair>& layers) {
  const bool is_a = name.ends_with(kEndA);
  if (!name.starts_with(kFirst) || (!is_a && !name.ends_with(kEndB)) ||
      name.size() <= kFirst.size() + kEndA.size())
    fail_file(kReadAdapterWhere,
              "expected tensors base_model.model.<path>.lora_A.weight and lora_B.weight in '", file.string(),
              "', got '", name, "'");
  if (!tensor.is_floating_point() || tensor.dim() != 2 || tensor.numel() == 0)
    fail_file(kReadAdapterWhere, "expected floating-point matrices in '", file.string(), "', got ",
              tensor.scalar_type(), ' ', tensor.sizes(), " in '", name, "'");
  if (tensor.size(is_a ? 0 : 1) != rank)
    fail_file(kReadAdapterWhere, "expected the rank ", rank, " of adapter_config.json in '", file.string(),
              "', got '", name, "' of ", tensor.sizes());
  const std::string path = name.substr(kFirst.size(), name.size() - kFirst.size() - kEndA.size());
  AdapterPair& pair = layers[path];
  const at::Tensor& own = (is_a ? pair.a : pair.b) = tensor.to(at::kFloat).contiguous();
  if (!at::isfinite(own).all().item<bool>())
    fail_file(kReadAdapterWhere, "expected finite adapters in '", file.string(),
              "', got NaN or infinite values in '", name, "'");
}

/// Path of the model's layer that a path of a file means, if there is one.
std::optional<std::string> own_path(const std::string& path, const std::vector<std::string>& own) {
  const auto has = [&](const std::string& one) { return std::ranges::find(own, one) != own.end(); };
  if (has(path)) return path;
  for (const std::string_view trunk : kTrunks) {
    if (path.starts_with(trunk) && has(path.substr(trunk.size()))) return path.substr(trunk.size());
    if (has(std::string(trunk) + path)) return std::string(trunk) + path;
  }
  return std::nullopt;
}

/// transformers' GPT-2 with an output layer has its blocks one level below.
std::string published_prefix(const graph::Graph& graph) {
  const bool gpt2 =
      graph.find_attribute("wte.weight") != nullptr && graph.find_attribute("wpe.weight") != nullptr;
  return gpt2 ? "transformer." : "";
}

/// What target_modules has to say for exactly these layers: names, or, where these mean others, too, a
/// pattern.
void say_targets(const LoraModel& model, const std::string& prefix, AdapterConfig& config) {
  std::vector<std::string>& names = config.options.target_modules;
  const auto has_adapter = [&](const std::string& path) {
    return std::ranges::any_of(model.layers(), [&](const LoraLayer& layer) { return layer.path == path; });
  };
  const auto fits = [&](const std::string& path) { return is_target(names, path) == has_adapter(path); };
  if (std::ranges::all_of(model.base().linear_paths, fits)) return;
  names.clear();
  for (const LoraLayer& layer : model.layers()) {
    std::string& pattern = config.target_pattern;
    pattern += pattern.empty() ? "(?:" : "|";
    for (const char letter : prefix + layer.path) {
      if (std::ispunct(static_cast<unsigned char>(letter)) && letter != '_') pattern += '\\';
      pattern += letter;
    }
  }
  config.target_pattern += ')';
}

/// The model's path of each layer of the adapter.
std::map<std::string, std::string> paths_in(const graph::GraphModule& captured, const Adapter& adapter) {
  const std::vector<std::string> own = linear_paths(captured);
  const std::vector<std::string_view> known(own.begin(), own.end());
  std::map<std::string, std::string> paths;  // the model's, then the file's
  for (const auto& [path, pair] : adapter.layers) {
    const std::optional<std::string> found = own_path(path, own);
    if (!found)
      fail(kLoadAdapterWhere, "expected adapters of linear layers that the model has, got one of '", path,
           "'; the nearest are ", nearest_names(path, known));
    const std::vector<std::string>& targets = adapter.config.options.target_modules;
    if (!targets.empty() && !is_target(targets, path) && !is_target(targets, *found))
      fail(kLoadAdapterWhere, "expected adapters of layers that target_modules means, got one of '", path,
           "', which PEFT would leave out");
    if (!paths.emplace(*found, path).second)
      fail(kLoadAdapterWhere, "expected one adapter for each layer, got '", path, "' and '", paths[*found],
           "' for '", *found, "'");
  }
  for (const std::string& one : own) {
    if (adapter.config.all_targets && is_target(adapter.config.options.target_modules, one) &&
        !paths.contains(one))
      fail(kLoadAdapterWhere, "expected an adapter for '", one,
           "', which target_modules means, got none: the file is not whole");
  }
  return paths;
}

}  // namespace

bool is_adapter(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kConfigName, error);
}

Adapter read_adapter(const fs::path& folder) {
  const fs::path config = folder / kConfigName, file = folder / kTensorsName;
  if (!is_adapter(folder))
    fail_file(kReadAdapterWhere,
              "expected a folder of PEFT with adapter_config.json and adapter_model.safetensors, got '",
              folder.string(), "'");
  Adapter adapter{.config = AdapterConfig::from_json(read_file(kReadAdapterWhere, config, kMostConfigBytes),
                                                     config.string()),
                  .layers = {}};
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    fail_file(kReadAdapterWhere, "expected adapter_model.safetensors in '", folder.string(), "', got none",
              fs::exists(folder / "adapter_model.bin", error)
                  ? "; adapter_model.bin holds pickled tensors, which are not read"
                  : "");
  for (const auto& [name, tensor] : io::load_tensors(file).tensors)
    take_tensor(file, name, tensor, adapter.config.options.rank, adapter.layers);
  if (adapter.layers.empty())
    fail_file(kReadAdapterWhere, "expected adapters in '", file.string(), "', got none");
  for (const auto& [path, pair] : adapter.layers) {
    if (!pair.a.defined() || !pair.b.defined())
      fail_file(kReadAdapterWhere, "expected lora_A and lora_B of each layer in '", file.string(), "', got ",
                pair.a.defined() ? "lora_A" : "lora_B", " alone of '", path, "'");
  }
  return adapter;
}

std::shared_ptr<LoraModel> load_adapter(const std::shared_ptr<graph::GraphModule>& captured,
                                        const Adapter& adapter, const LoraOptions& base,
                                        graph::PassReport* report) {
  if (!captured) fail(kLoadAdapterWhere, "expected a captured model, got null");
  const std::map<std::string, std::string> paths = paths_in(*captured, adapter);
  LoraOptions options = adapter.config.options;
  options.base = base.base;
  options.group = base.group;
  options.double_quant = base.double_quant;
  options.skip_modules = base.skip_modules;
  GivenAdapters given;
  for (const auto& [own, path] : paths) given[own] = adapter.layers.at(path);
  if (options.target_modules.empty()) {
    for (const auto& [own, path] : paths) options.target_modules.push_back(own);
  }
  return add_adapters(captured, options, &given, report);
}

std::shared_ptr<LoraModel> load_adapter(const std::shared_ptr<graph::GraphModule>& captured,
                                        const fs::path& folder, const LoraOptions& base,
                                        graph::PassReport* report) {
  return load_adapter(captured, read_adapter(folder), base, report);
}

void save_adapter(const fs::path& folder, const LoraModel& model, const std::string& base_model) {
  const std::string prefix = published_prefix(*model.base().graph);
  AdapterConfig config{.options = model.options(), .base_model = base_model};
  io::NamedTensors tensors;
  for (const LoraLayer& layer : model.layers()) {
    const std::string path = prefix + layer.path;
    config.fan_in_fan_out |= layer.transposed;
    for (const auto& [end, tensor] : {std::pair{kEndA, model.a(layer)}, std::pair{kEndB, model.b(layer)}}) {
      if (!at::isfinite(tensor.detach()).all().item<bool>())
        fail(kSaveAdapterWhere, "expected finite adapters, got NaN or infinite values in '", path, end, "'");
      tensors.emplace_back(std::string(kFirst) + path + std::string(end),
                           tensor.detach().to(at::kCPU, at::kFloat).contiguous());
    }
  }
  if (config.options.target_modules.front() == "all-linear") {
    config.options.target_modules.clear();
    for (const LoraLayer& layer : model.layers()) config.options.target_modules.push_back(layer.path);
  }
  say_targets(model, prefix, config);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(kSaveAdapterWhere, "could not make the folder '", folder.string(), "': ", error.message());
  fs::remove(folder / kConfigName, error);
  io::save_tensors(folder / kTensorsName, tensors, {{"format", "pt"}});
  AtomicFile file(folder / kConfigName);
  file.write(config.to_json());
  file.commit();
}

}  // namespace ulp::lora
