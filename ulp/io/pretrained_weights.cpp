#include "ulp/io/pretrained_weights.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/base/read_file.h"

namespace ulp::io {

namespace {

namespace fs = std::filesystem;

constexpr const char* kLoadPublishedWhere = "io.load_pretrained";
constexpr uintmax_t kMostIndexBytes = uintmax_t{64} << 20;
constexpr const char* kIndexEnd = ".index.json";

/// Refuses what Python's pickle wrote: it is a program, which this one does not run.
void refuse_pickle(const fs::path& path) {
  std::string head(9, '\0');
  std::ifstream(path, std::ios::binary).read(head.data(), static_cast<std::streamsize>(head.size()));
  if (head[8] == '{') return;  // the header of safetensors, behind its length
  const std::string_view start = std::string_view(head).substr(0, 4);
  const bool zip = start == std::string_view("PK\x03\x04", 4);  // torch.save of today
  const bool pickle = start[0] == '\x80' && start[1] > 0 && start[1] <= 5;
  if (!zip && !pickle) return;
  fail_file(kLoadPublishedWhere, "expected a safetensors file, got '", path.string(),
            "', which holds pickled weights. Convert it in Python: import torch, safetensors.torch; "
            "safetensors.torch.save_file({k: v.clone().contiguous() for k, v in torch.load('",
            path.filename().string(), "', weights_only=True).items()}, 'model.safetensors')");
}

NamedTensors load_shard(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    fail_file(kLoadPublishedWhere, "expected a file, got '", path.string(), "'");
  refuse_pickle(path);
  return load_tensors(path).tensors;
}

/// The name of a file beside the index, and nothing else.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

NamedTensors load_index(const fs::path& path) {
  const std::string text = read_file(kLoadPublishedWhere, path, kMostIndexBytes);
  std::map<std::string, std::set<std::string>> shards;
  try {
    const nlohmann::json index = parse_json(text);
    for (const auto& [name, file] : index.at("weight_map").items())
      shards[file.get<std::string>()].insert(name);
  } catch (const nlohmann::json::exception& failed) {
    fail_file(kLoadPublishedWhere, "expected an index of shards in '", path.string(), "': ", failed.what());
  }
  NamedTensors all;
  for (const auto& [file, names] : shards) {
    if (!is_plain_name(file))
      fail_file(kLoadPublishedWhere, "expected shards beside '", path.string(), "', got the path '", file,
                "'");
    std::set<std::string> left = names;
    for (auto& [name, tensor] : load_shard(path.parent_path() / file))
      if (left.erase(name) > 0) all.emplace_back(name, std::move(tensor));
    if (!left.empty())
      fail_file(kLoadPublishedWhere, "expected the tensor '", *left.begin(), "' in the shard '", file,
                "' of '", path.string(), "', got none");
  }
  return all;
}

bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](const char* end) { return name.ends_with(end); });
}

/// Tensors that published files hold beside weights.
bool holds_nothing(const std::string& name) {
  return ends_with_any(name, {".position_ids", ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq",
                              ".total_ops", ".total_params"}) ||
         name.starts_with("fit_dense") || name.find(".fit_dense") != std::string::npos;
}

bool is_tied(const std::string& name) {
  return name == "lm_head.weight" || name.ends_with(".lm_head.weight");
}

bool is_gpt2_matrix(const std::string& name) {
  return ends_with_any(
      name, {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight", ".mlp.c_proj.weight"});
}

/// Finds the model's name for a name of a file.
class Names {
 public:
  explicit Names(const NamedTensors& own) {
    for (const auto& [name, tensor] : own) {
      own_.emplace(name, tensor);
      for (const char* const prefix : {"bert.", "distilbert.", "model."})
        if (name.starts_with(prefix)) prefix_ = prefix;
    }
  }

  /// The table of words that may be the output layer, too; empty where the output layer is the model's own or
  /// there is none.
  std::string tied_table() const {
    for (const char* const name : {"wte.weight", "model.embed_tokens.weight"})
      if (own_.contains(name) && !own_.contains("lm_head.weight")) return name;
    return "";
  }

  const at::Tensor* find(const std::string& name) const {
    const auto found = own_.find(name);
    return found == own_.end() ? nullptr : &found->second;
  }

  std::optional<std::string> own(std::string name) const {
    if (find(name) != nullptr) return name;
    strip(name, "module.");  // of DataParallel
    // Layer norms of files from before 2019, which came from TensorFlow.
    if (name.ends_with("LayerNorm.gamma")) name.replace(name.size() - 5, 5, "weight");
    if (name.ends_with("LayerNorm.beta")) name.replace(name.size() - 4, 4, "bias");
    std::string bare = name;
    strip(bare, "transformer.");
    for (const std::string& one : {name, prefix_ + name, bare})
      if (find(one) != nullptr) return one;
    return std::nullopt;
  }

 private:
  static void strip(std::string& name, std::string_view prefix) {
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  }

  std::unordered_map<std::string, at::Tensor> own_;
  std::string prefix_;
};

/// Whether GPT-2's matrices come as those of linear layers, (out, in): told by the first that is not square.
bool comes_transposed(const Names& names, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!is_gpt2_matrix(name) || tensor.dim() != 2 || tensor.size(0) == tensor.size(1)) continue;
    const at::Tensor* own = names.find(name);
    if (own != nullptr && own->dim() == 2 && own->sizes() != tensor.sizes())
      return own->t().sizes() == tensor.sizes();
  }
  return false;
}

}  // namespace

NamedTensors load_pretrained_tensors(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (const char* const name : {"model.safetensors", "model.safetensors.index.json"})
      if (fs::is_regular_file(path / name, error)) return load_pretrained_tensors(path / name);
    for (const char* const name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
      if (fs::is_regular_file(path / name, error)) {
        if (fs::path(name).extension() == ".bin") refuse_pickle(path / name);
        fail_file(kLoadPublishedWhere, "expected model.safetensors in '", path.string(), "', got ", name,
                  ", which holds pickled weights: save the model with safe_serialization in Python");
      }
    fail_file(kLoadPublishedWhere, "expected model.safetensors or model.safetensors.index.json in '",
              path.string(), "', got neither");
  }
  if (path.string().ends_with(kIndexEnd)) return load_index(path);
  return load_shard(path);
}

PretrainedReport assign_pretrained(torch::nn::Module& model, const NamedTensors& tensors, bool strict,
                                   const std::string& source) {
  const NamedTensors state = named_state(model);
  const Names names(state);
  PretrainedReport report;
  NamedTensors mapped;
  std::unordered_map<std::string, std::string> from;  // the file's name of each of the model's
  std::vector<std::string> unexpected;
  const std::string table_name = names.tied_table();
  for (const auto& [name, tensor] : tensors) {
    const std::optional<std::string> own = names.own(name);
    if (!own) {
      const at::Tensor* tied = is_tied(name) ? names.find(table_name) : nullptr;
      const bool nothing = holds_nothing(name) || (tied != nullptr && tied->sizes() == tensor.sizes());
      (nothing ? report.ignored : unexpected).push_back(name);
      continue;
    }
    const auto [before, fresh] = from.emplace(*own, name);
    if (!fresh)
      fail_file(kLoadPublishedWhere, "expected one tensor for '", *own, "' in '", source, "', got '",
                before->second, "' and '", name, "'");
    if (*own != name) report.renamed.push_back(name + " -> " + *own);
    mapped.emplace_back(*own, tensor);
  }
  for (const auto& [name, tensor] :
       tensors) {  // a tied copy says the same, or the file is of another network
    if (!is_tied(name) || !from.contains(table_name)) continue;
    const auto table =
        std::find_if(mapped.begin(), mapped.end(), [&](const auto& one) { return one.first == table_name; });
    if (table->second.sizes() == tensor.sizes() && torch::equal(table->second, tensor)) continue;
    if (std::erase(report.ignored, name) > 0) unexpected.push_back(name);
  }
  report.transposed = comes_transposed(names, mapped);
  for (auto& [name, tensor] : mapped)
    if (report.transposed && is_gpt2_matrix(name) && tensor.dim() == 2) tensor = tensor.t();
  for (const auto& [name, tensor] : state)  // counters, which files of before 2018 have none of
    if (name.ends_with(".num_batches_tracked") && !from.contains(name)) mapped.emplace_back(name, tensor);
  if (strict) {  // finds what differs and throws before anything is copied
    NamedTensors all = mapped;
    for (const std::string& name : unexpected) all.emplace_back(name, torch::zeros({}));
    report.differences = assign_state(model, all, strict, source);
    return report;
  }
  report.differences = assign_state(model, mapped, strict, source);
  report.differences.unexpected = unexpected;
  return report;
}

PretrainedReport load_pretrained(const fs::path& path, torch::nn::Module& model, bool strict) {
  return assign_pretrained(model, load_pretrained_tensors(path), strict, path.string());
}

void save_pretrained(const fs::path& path, const torch::nn::Module& model) {
  save_tensors(path, named_state(model), {{"format", "pt"}});
}

}  // namespace ulp::io
