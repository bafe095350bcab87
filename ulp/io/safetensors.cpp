#include "ulp/io/safetensors.h"

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/base/safetensors.h"
#include "ulp/io/graph_file.h"
#include "ulp/libtorch/safetensors_tensor.h"

namespace ulp::io {

namespace {

constexpr const char* kAliases = "ulp.aliases";

void add_aliases(TensorFile& file, const std::filesystem::path& path) {
  const auto stored = file.metadata.find(kAliases);
  if (stored == file.metadata.end()) return;
  std::map<std::string, std::string> aliases;
  try {
    parse_json(stored->second).get_to(aliases);
  } catch (const nlohmann::json::exception& error) {
    fail_file("io.load_tensors", "the aliases in '", path.string(), "' are not readable: ", error.what());
  }
  file.metadata.erase(stored);
  std::unordered_map<std::string, at::Tensor> by_name(file.tensors.begin(), file.tensors.end());
  for (const auto& [name, target] : aliases) {
    const auto found = by_name.find(target);
    if (found == by_name.end() || by_name.count(name) != 0) {
      fail_file("io.load_tensors", "'", path.string(), "' names '", name, "' as an alias of '", target,
                found == by_name.end() ? "', which is not there" : "', but also stores it");
    }
    file.tensors.emplace_back(name, found->second);
  }
}

std::string shape_text(const at::Tensor& tensor) {
  std::string text = "(";
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(tensor.size(i));
  }
  text += ") ";
  return text.append(tensor.toString());
}

/// Values may change their floating format on the way in, not their kind; but a counter (num_batches_tracked)
/// may come from a model that Module::to turned into a floating type as a whole.
bool fits(const at::Tensor& target, const at::Tensor& source) {
  const bool kind = target.scalar_type() == source.scalar_type() || target.dim() == 0 ||
                    (target.is_floating_point() && source.is_floating_point());
  return kind && target.sizes() == source.sizes();
}

std::string list(const char* title, const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  if (names.empty()) return {};
  std::string text = title;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text.append(i ? ", " : " ").append(names[i]);
  if (names.size() > kShown)
    text.append(" and ").append(std::to_string(names.size() - kShown)).append(" more");
  return text + "; ";
}

}  // namespace

const at::Tensor* TensorFile::find(const std::string& name) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& named) { return named.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors, const Metadata& metadata) {
  constexpr const char* kWhere = "io.save_tensors";
  std::map<libtorch::TensorIdentity, std::string> stored;
  std::map<std::string, std::string> aliases;
  std::vector<at::Tensor> keep;  // what the entries' spans point into
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    libtorch::check_name(kWhere, name);
    if (!tensor.defined()) fail(kWhere, "expected a tensor for '", name, "', got none");
    const char* word = libtorch::safetensors_word(tensor.scalar_type());
    if (word == nullptr)
      fail(kWhere, "safetensors has no dtype for '", name, "' of type ", tensor.toString());
    if (tensor.layout() != at::kStrided || tensor.is_meta())
      fail(kWhere, "expected a dense tensor for '", name, "'");
    if (tensor.numel() > 0) {
      const auto [first, is_new] = stored.emplace(libtorch::identity_of(tensor), name);
      if (!is_new) {
        if (!aliases.emplace(name, first->second).second) fail(kWhere, "duplicate name '", name, "'");
        continue;
      }
    }
    keep.push_back(tensor.detach().cpu().resolve_conj().resolve_neg().contiguous());
    const auto* bytes = static_cast<const std::byte*>(keep.back().const_data_ptr());
    entries.push_back({name, word, tensor.sizes().vec(), {bytes, keep.back().nbytes()}});
  }
  for (const TensorEntry& entry : entries) {
    if (aliases.count(entry.name) != 0) fail(kWhere, "duplicate name '", entry.name, "'");
  }
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return safetensors_element_size(a.dtype) > safetensors_element_size(b.dtype);
  });
  Metadata all = metadata;
  if (!aliases.empty()) all[kAliases] = nlohmann::json(aliases).dump();
  write_safetensors(path, entries, all);
}

TensorFile load_tensors(const std::filesystem::path& path) {
  const SafetensorsFile source(path);
  TensorFile file;
  file.metadata = source.metadata();
  file.tensors.reserve(source.tensors().size());
  for (const TensorEntry& entry : source.tensors())
    file.tensors.emplace_back(entry.name, libtorch::to_tensor("io.load_tensors", entry, path));
  add_aliases(file, path);
  return file;
}

Metadata load_metadata(const std::filesystem::path& path) {
  return SafetensorsFile(path).metadata();
}

NamedTensors named_state(const torch::nn::Module& model) {
  NamedTensors state;
  for (const auto& item : model.named_parameters()) state.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) state.emplace_back(item.key(), item.value());
  return state;
}

void save_model(const std::filesystem::path& path, const torch::nn::Module& model, const Metadata& metadata) {
  save_tensors(path, named_state(model), metadata);
}

std::string LoadReport::text() const {
  std::string all =
      list("missing:", missing) + list("unexpected:", unexpected) + list("does not fit:", mismatched);
  if (!all.empty()) all.resize(all.size() - 2);
  return all;
}

LoadReport assign_state(torch::nn::Module& model, const NamedTensors& tensors, bool strict,
                        const std::string& source) {
  std::unordered_map<std::string, at::Tensor> offered(tensors.begin(), tensors.end());
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  LoadReport report;
  for (const auto& [name, target] : named_state(model)) {
    const auto found = offered.find(name);
    if (found == offered.end()) {
      report.missing.push_back(name);
      continue;
    }
    if (fits(target, found->second)) {
      copies.emplace_back(target, found->second);
    } else {
      report.mismatched.push_back(name + ": " + shape_text(target) + ", got " + shape_text(found->second));
    }
    offered.erase(found);
  }
  for (const auto& [name, tensor] : tensors) {
    if (offered.count(name) != 0) report.unexpected.push_back(name);
  }
  if (strict && !report.ok())
    fail_file("io.load_model", "'", source, "' does not fit the model; ", report.text());
  torch::NoGradGuard no_grad;
  for (auto& [target, value] : copies) target.copy_(value);
  return report;
}

namespace {

/// Constants of a graph are no state of the module that it was captured from.
NamedTensors without_constants(const TensorFile& file, const torch::nn::Module& model,
                               const std::filesystem::path& path) {
  std::set<std::string> constants;
  try {
    const nlohmann::json graph = parse_json(file.metadata.at(kGraphKey));
    for (const auto& one : graph.at("attributes")) {
      if (one.at("kind") == "constant") constants.insert(one.at("name").get<std::string>());
    }
  } catch (const nlohmann::json::exception& error) {
    fail_file("io.load_model", "the graph in '", path.string(), "' is not readable: ", error.what());
  }
  for (const auto& [name, tensor] : named_state(model)) constants.erase(name);
  NamedTensors state;
  for (const auto& [name, tensor] : file.tensors) {
    if (!constants.contains(name)) state.emplace_back(name, tensor);
  }
  return state;
}

LoadReport load_graph_state(const TensorFile& file, torch::nn::Module& model, bool strict,
                            const std::filesystem::path& path) {
  const NamedTensors state = without_constants(file, model, path);
  try {
    return assign_state(model, state, strict, path.string());
  } catch (const FileError& error) {
    throw FileError(
        std::string(error.what()) +
        "; the file holds a captured model, which load_graph() reads with the tensors that it has");
  }
}

}  // namespace

LoadReport load_model(const std::filesystem::path& path, torch::nn::Module& model, bool strict) {
  TensorFile file = load_tensors(path);
  if (file.metadata.contains(kGraphKey)) return load_graph_state(file, model, strict, path);
  if (file.metadata.count("ulp.checkpoint") == 0)
    return assign_state(model, file.tensors, strict, path.string());
  const std::string prefix = "model.";
  NamedTensors part;
  for (auto& [name, tensor] : file.tensors) {
    if (name.compare(0, prefix.size(), prefix) == 0) part.emplace_back(name.substr(prefix.size()), tensor);
  }
  return assign_state(model, part, strict, path.string());
}

}  // namespace ulp::io
