#include "ulp/app/model_io/pretrained_file.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <fstream>

#include "ulp/app/model_io/exchange_component.h"
#include "ulp/app/model_io/exchange_file.h"
#include "ulp/app/model_io/pretrained_config.h"
#include "ulp/app/model_io/pretrained_settings.h"
#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/zip_archive.h"
#include "ulp/models/registry.h"

namespace ulp::app {

namespace {

namespace fs = std::filesystem;

constexpr const char* kLoadPublishedModelWhere = "app.load_pretrained_model";
/// Elements that a config.json may ask for beyond those of the weights.
constexpr int64_t kSpareElements = int64_t{1} << 24;
/// Tensors that may be missing beyond as many as there are.
constexpr size_t kSpareTensors = 64;

fs::path beside(const fs::path& path, const char* name) {
  std::error_code error;
  return (fs::is_directory(path, error) ? path : path.parent_path()) / name;
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

/// What Python's pickle wrote, alone or in the archive of torch.save; TorchScript has code besides.
bool is_pickled(const fs::path& path) {
  std::string head(9, '\0');
  std::ifstream(path, std::ios::binary).read(head.data(), static_cast<std::streamsize>(head.size()));
  if (head[0] == '\x80' && head[1] > 0 && head[1] <= 5)
    return head[8] != '{';  // as safetensors have it there
  if (!is_zip_file(path)) return false;
  try {
    const io::ZipArchive archive(path, kLoadPublishedModelWhere, "a zip archive");
    const auto any = [&](const char* part) {
      return std::ranges::any_of(archive.entries(), [&](const io::ZipEntry& entry) {
        return ('/' + entry.name).find(part) != std::string::npos;
      });
    };
    return any("/data.pkl") && !any("/code/") && !any("/archive_format");
  } catch (const FileError&) {
    return false;  // whoever reads it says what is wrong
  }
}

/// Safetensors that no part of this library wrote.
bool is_foreign_safetensors(const fs::path& path) {
  try {
    return std::ranges::none_of(io::load_metadata(path),
                                [](const auto& entry) { return entry.first.starts_with("ulp."); });
  } catch (const FileError&) {
    return false;
  }
}

Network network_of(const std::shared_ptr<models::TextModel>& model) {
  return {model, [model](const train::TaskBatch& batch) { return model->forward(batch.inputs); }};
}

ModelSpec spec_of(const PublishedConfig& config, const fs::path& path) {
  ModelSpec spec{.name = config.name,
                 .kind = config.writes() ? NetworkKind::language : NetworkKind::text,
                 .num_classes = config.vocab_size(),
                 .max_length = config.max_length(),
                 .class_names = config.class_names};
  if (const auto* bert = std::get_if<models::BertConfig>(&config.network))
    spec.num_classes = bert->num_classes;
  if (const auto* distilbert = std::get_if<models::DistilBertConfig>(&config.network))
    spec.num_classes = distilbert->num_classes;
  const fs::path tokenizer = beside(path, "tokenizer.json");
  if (!is_file(tokenizer)) return spec;
  spec.tokenizer = std::make_shared<const io::Tokenizer>(io::Tokenizer::load(tokenizer));
  if (spec.vocab_size() > config.vocab_size())
    fail_file(kLoadPublishedModelWhere, "expected at most the ", config.vocab_size(),
              " tokens of config.json in '", tokenizer.string(), "', got ", spec.vocab_size());
  return spec;
}

/// Gives a decoder the longest text that was asked for.
void take_sizes(const fs::path& path, const ModelSpec& like, PublishedConfig& config) {
  auto* decoder = std::get_if<models::DecoderConfig>(&config.network);
  for (const auto& [name, size] : like.sizes) {
    if (decoder == nullptr || name != "time")
      fail_file(kLoadPublishedModelWhere, "expected ",
                decoder == nullptr ? "no --size beside '" : "a size of 'time', the dimension of '",
                path.string(), "', got one of '", name, "'");
    if (like.smallest_sizes.contains(name))
      fail_file(kLoadPublishedModelWhere, "expected a largest size alone, as time=", size, ", beside '",
                path.string(), "', whose texts are free from 1 on");
    if (size < 1 || size > std::min<int64_t>(config.positions, PretrainedSettings::kLargestSize))
      fail_file(kLoadPublishedModelWhere, "expected texts of at most the ",
                std::min<int64_t>(config.positions, PretrainedSettings::kLargestSize), " tokens that '",
                path.string(), "' has positions for, got ", size);
    decoder->max_length = size;
  }
}

int64_t elements_of(const io::NamedTensors& tensors) {
  int64_t elements = 0;
  for (const auto& [name, tensor] : tensors) elements += tensor.numel();
  return elements;
}

/// The name of the last matrix: of the classifier.
std::string classifier_of(const torch::nn::Module& model) {
  std::string last;
  for (const auto& [name, tensor] : io::named_state(model))
    if (tensor.dim() == 2) last = name;
  return last;
}

/// The classes that the weights have, in a network of that name.
int64_t classes_in(const io::NamedTensors& tensors, const ModelSpec& spec) {
  const std::string classifier = classifier_of(*models::make_model(
      spec.name, {.in_channels = spec.in_channels, .num_classes = 1, .image_size = spec.image_size}));
  for (const auto& [name, tensor] : tensors)
    if (!classifier.empty() && name.ends_with(classifier) && tensor.dim() == 2) return tensor.size(0);
  return spec.num_classes;
}

void expect_image_network(const fs::path& path, const std::string& name) {
  const std::vector<std::string> names = models::model_names();
  if (std::ranges::find(names, name) != names.end()) return;
  std::string known;
  for (const std::string& one : names) known += (known.empty() ? "" : ", ") + one;
  fail_file(kLoadPublishedModelWhere, "expected a config.json beside '", path.string(),
            "', or the name of its network, one of ", known, ", got ",
            name.empty() ? "neither" : "'" + name + "'");
}

}  // namespace

bool is_pretrained_file(const fs::path& path, const std::string& network) {
  std::error_code error;
  if (fs::is_directory(path, error) || path.string().ends_with(".index.json")) return true;
  if (!is_file(path) || is_exchange_file(path)) return false;
  if (is_gguf_file(path) || is_pickled(path)) return true;
  if (is_zip_file(path)) return false;
  return (!network.empty() || is_file(beside(path, "config.json"))) && is_foreign_safetensors(path);
}

bool says_its_network(const fs::path& path) {
  return is_gguf_file(path) || is_file(beside(path, "config.json"));
}

std::optional<ModelSpec> pretrained_spec(const fs::path& path) {
  if (is_gguf_file(path)) return exchange_files.functions(kLoadPublishedModelWhere).gguf_spec(path);
  const fs::path config = beside(path, "config.json");
  if (!is_file(config)) return std::nullopt;
  return spec_of(read_published_config(config), path);
}

bool pretrained_classifier(const fs::path& path) {
  const fs::path config = beside(path, "config.json");
  return !is_gguf_file(path) && is_file(config) && read_published_config(config).classifies;
}

PretrainedModel load_pretrained_model(const fs::path& path, const ModelSpec& like, PretrainedFit fit) {
  if (is_gguf_file(path)) return exchange_files.functions(kLoadPublishedModelWhere).load_gguf(path);
  if (is_file(beside(path, "adapter_config.json")))
    fail_file(
        kLoadPublishedModelWhere, "expected a network alone in '", path.string(),
        "', got adapter_config.json beside it; --adapter merges it into the weights of a network alone");
  const io::NamedTensors tensors = io::load_pretrained_tensors(path);
  const bool partial = fit == PretrainedFit::partial;
  const fs::path file = beside(path, "config.json");
  PretrainedModel model;
  if (is_file(file)) {
    PublishedConfig config = read_published_config(file);
    take_sizes(path, like, config);
    const int64_t stored = elements_of(tensors);
    if (config.elements() / 2 > stored + kSpareElements)
      fail_file(kLoadPublishedModelWhere, "expected about ", config.elements(),
                " elements, as config.json says, in '", path.string(), "', got ", stored);
    model.spec = spec_of(config, path);
    if (partial && model.spec.kind == NetworkKind::text) {
      model.spec.num_classes = like.num_classes;
      model.spec.class_names = like.class_names;
      if (auto* bert = std::get_if<models::BertConfig>(&config.network)) bert->num_classes = like.num_classes;
      if (auto* distilbert = std::get_if<models::DistilBertConfig>(&config.network))
        distilbert->num_classes = like.num_classes;
    }
    model.network = network_of(config.make());
  } else {
    if (!like.sizes.empty())
      fail_file(kLoadPublishedModelWhere, "expected no --size beside '", path.string(), "'");
    expect_image_network(path, like.network);
    model.spec = like;
    model.spec.name = like.network;
    if (!partial || like.num_classes < 1) model.spec.num_classes = classes_in(tensors, model.spec);
    model.network = make_network(model.spec);
  }
  model.report = io::assign_pretrained(*model.network.module, tensors, !partial, path.string());
  const size_t missing = model.report.differences.missing.size();
  if (missing > tensors.size() + kSpareTensors)
    fail_file(kLoadPublishedModelWhere,
              "expected the weights of most of the layers that the network has, got ", tensors.size(),
              " tensors in '", path.string(), "', and ", missing, " are missing");
  model.network.module->eval();
  model.network = captured(model.network, model.spec);
  model.network.module->eval();
  if (partial) model.network.note = model.report.text();
  return model;
}

}  // namespace ulp::app
