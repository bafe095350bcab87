// What `ulp roofline` looks at: files, and reference networks by name.
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <filesystem>

#include "ulp/app/inspect.h"
#include "ulp/app/roofline_parts.h"
#include "ulp/app/runnable.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/lower/lower.h"
#include "ulp/models/bert.h"
#include "ulp/models/gpt2.h"
#include "ulp/quant/quantize_model.h"

namespace ulp::app {

namespace {

RooflineNetwork from_text(const RooflineOptions& options, const std::shared_ptr<models::TextModel>& model) {
  model->eval();
  return {.graph = capture(model, {torch::ones({2, options.tokens}, torch::kLong)}),
          .name = options.model,
          .text = true,
          .tokens = options.tokens,
          .spec = {}};
}

}  // namespace

RooflineNetwork open_network(const RooflineOptions& options) {
  torch::manual_seed(0);
  const std::string& name = options.model;
  if (name == "bert-base") {
    models::BertConfig config = models::BertConfig::base();
    config.max_length = std::max(config.max_length, options.tokens);
    return from_text(options, models::make_bert(config));
  }
  if (name == "gpt2-small") {
    models::Gpt2Config config = models::Gpt2Config::small();
    config.max_length = std::max(config.max_length, options.tokens);
    return from_text(options, models::make_gpt2(config));
  }
  ModelSpec spec = options.spec;
  if (is_reference_network(name) && !std::filesystem::exists(name)) {
    spec.name = name;
    const Network made = captured(make_network(spec), spec);
    return {.graph = std::dynamic_pointer_cast<graph::GraphModule>(made.module), .name = name, .spec = spec};
  }
  const auto stored = read_model_spec(name);
  const bool text = stored && stored->kind != NetworkKind::image;
  LoadedModel model = text ? load_text_model_file(name) : load_model_file(name, spec);
  return {.graph = model.graph,
          .name = model.spec.name,
          .text = text,
          .tokens = model.spec.max_length,
          .spec = model.spec};
}

at::Tensor random_batch(const RooflineNetwork& network, int64_t batch) {
  torch::manual_seed(0);
  if (network.text) return torch::zeros({batch, network.tokens}, torch::kLong);
  return torch::randn({batch, network.spec.in_channels, network.spec.image_size, network.spec.image_size});
}

}  // namespace ulp::app
