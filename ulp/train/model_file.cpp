#include "ulp/train/model_file.h"

#include <torch/script.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/graph/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/safetensors.h"
#include "ulp/models/registry.h"

namespace ulp::train {

namespace {

/// Two images, so that capture can run the model in train mode as well.
at::Tensor example(const ModelSpec& spec) {
  return torch::zeros({2, spec.in_channels, spec.image_size, spec.image_size});
}

/// TorchScript archives are zip files.
bool is_zip(const std::filesystem::path& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, 4) == std::string_view("PK\x03\x04", 4);
}

LoadedModel load_script(const std::filesystem::path& path, const ModelSpec& spec) {
  auto module = std::make_shared<torch::jit::Module>();
  try {
    *module = torch::jit::load(path.string());
  } catch (const c10::Error& error) {
    fail_file("train.load_model_file", "'", path.string(),
              "' is no TorchScript module: ", error.what_without_backtrace());
  }
  module->eval();
  LoadedModel loaded{.spec = spec, .forward = {}, .graph = capture(*module, {example(spec)})};
  loaded.spec.name = path.stem().string();
  loaded.graph->eval();
  loaded.forward = [module](const at::Tensor& images) { return module->forward({images}).toTensor(); };
  return loaded;
}

LoadedModel load_reference(const std::filesystem::path& path) {
  const io::Metadata metadata = io::load_metadata(path);
  const auto found = metadata.find(kModelSpecKey);
  if (found == metadata.end()) {
    fail_file("train.load_model_file", "expected a model written by `ulp train` or a TorchScript file, got '",
              path.string(),
              metadata.contains("ulp.plan") ? "', which is an engine file" : "', which names no network");
  }
  const ModelSpec spec = ModelSpec::from_json(found->second);
  const auto model = models::make_model(spec.name, {spec.in_channels, spec.num_classes, spec.image_size});
  io::load_model(path, *model);
  models::to_channels_last(*model);
  model->eval();
  LoadedModel loaded{.spec = spec, .forward = {}, .graph = capture_model(*model, spec)};
  loaded.forward = [model](const at::Tensor& images) { return model->forward(images); };
  return loaded;
}

}  // namespace

std::string ModelSpec::to_json() const {
  return nlohmann::json{{"name", name},
                        {"in_channels", in_channels},
                        {"num_classes", num_classes},
                        {"image_size", image_size},
                        {"mean", mean},
                        {"std", std}}
      .dump();
}

ModelSpec ModelSpec::from_json(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    ModelSpec spec{.name = json.at("name").get<std::string>(),
                   .in_channels = json.at("in_channels").get<int64_t>(),
                   .num_classes = json.at("num_classes").get<int64_t>(),
                   .image_size = json.at("image_size").get<int64_t>(),
                   .mean = json.at("mean").get<std::vector<double>>(),
                   .std = json.at("std").get<std::vector<double>>()};
    const auto sane = [](int64_t value) { return value > 0 && value <= 65536; };
    if (!sane(spec.in_channels) || !sane(spec.num_classes) || !sane(spec.image_size)) {
      fail_file("train.ModelSpec", "expected sizes in 1..65536, got ", text);
    }
    return spec;
  } catch (const nlohmann::json::exception& error) {
    fail_file("train.ModelSpec", "expected a model's description in JSON: ", error.what());
  }
}

void save_model_file(const std::filesystem::path& path, models::ImageModel& model, const ModelSpec& spec) {
  io::save_model(path, model, {{kModelSpecKey, spec.to_json()}});
}

LoadedModel load_model_file(const std::filesystem::path& path, const ModelSpec& script_spec) {
  return is_zip(path) ? load_script(path, script_spec) : load_reference(path);
}

std::shared_ptr<graph::GraphModule> capture_model(models::ImageModel& model, const ModelSpec& spec) {
  auto module = capture(model, {example(spec)});
  module->eval();
  return module;
}

}  // namespace ulp::train
