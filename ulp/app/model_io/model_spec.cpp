// Descriptions of networks, and reference networks captured by them.
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ulp/app/model_io/model_file.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/libtorch/shape_propagation.h"

namespace ulp::app {

namespace {

constexpr const char* kKinds[] = {"image", "language", "text"};

}  // namespace

const char* to_string(NetworkKind kind) {
  return kKinds[static_cast<size_t>(kind)];
}

void ModelSpec::take_rows() {
  rows = true;
  image_size = 1;
  image_width = 0;
  const auto all = [](const std::vector<double>& values, double value) {
    return std::ranges::all_of(values, [value](double one) { return one == value; });
  };
  if (!all(mean, ModelSpec{}.mean[0]) || !all(std, ModelSpec{}.std[0])) return;
  mean.assign(static_cast<size_t>(in_channels), 0);
  std.assign(static_cast<size_t>(in_channels), 1);
}

std::vector<int64_t> ModelSpec::batch_sizes(int64_t batch) const {
  if (rows) return {batch, in_channels};
  return {batch, in_channels, image_size, width()};
}

std::string ModelSpec::input_text() const {
  if (kind != NetworkKind::image) return "texts";
  if (rows) return "rows of " + std::to_string(in_channels) + " values";
  return "images of " + std::to_string(in_channels) + "x" + std::to_string(image_size) + "x" +
         std::to_string(width());
}

std::string ModelSpec::to_json() const {
  nlohmann::json json{{"name", name}, {"num_classes", num_classes}};
  if (kind == NetworkKind::image) {
    json.update({{"in_channels", in_channels}, {"image_size", image_size}, {"mean", mean}, {"std", std}});
    if (width() != image_size) json["image_width"] = image_width;
    if (rows) json["rows"] = true;
  } else {
    json.update({{"kind", to_string(kind)}, {"max_length", max_length}, {"class_names", class_names}});
    if (tokenizer) json["tokenizer"] = tokenizer->to_json();
  }
  return json.dump();
}

bool same_tokens(const ModelSpec& a, const ModelSpec& b) {
  if (!a.tokenizer || !b.tokenizer || a.tokenizer == b.tokenizer) return true;
  return a.tokenizer->to_json() == b.tokenizer->to_json();
}

std::shared_ptr<graph::GraphModule> capture_model(models::ImageModel& model, const ModelSpec& spec) {
  // Two samples, so that capture can run the model in train mode as well.
  std::shared_ptr<graph::GraphModule> module;
  libtorch::with_shapes([&] { module = capture(model, {torch::zeros(spec.batch_sizes(2))}); });
  module->eval();
  return module;
}

}  // namespace ulp::app
