// The reference networks with random weights, as programs write them for other runtimes.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "bench/random_networks.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"
#include "ulp/ulp.h"

namespace ulp::bench {

using Module = std::shared_ptr<ulp::graph::GraphModule>;
/// Of texts; it is free.
inline constexpr int64_t kLength = 24;

inline int64_t side_of(const std::string& network) {
  if (network == "inception_v3") return 75;
  return network == "mlp" || network == "lenet5" || network == "binary_lenet5" ? 28 : 64;
}

/// A network with random weights, and what it takes at a batch.
struct Case {
  Module module = nullptr;
  std::function<torch::Tensor(int64_t batch)> input;
};

inline Case image_network(const std::string& name) {
  const int64_t side = side_of(name), channels = side == 28 ? 1 : 3;
  const auto images = [=](int64_t batch) { return torch::randn({batch, channels, side, side}); };
  const auto model = ulp::models::make_model(name, {.in_channels = channels, .image_size = side});
  settle(*model);
  model->train();
  for (int i = 0; i < 3; ++i) model->forward(images(8));
  model->eval();
  Module module = ulp::capture(*model, {images(2)});
  module->eval();
  return {module, images};
}

inline Case text_network(const std::string& name) {
  using ulp::models::TextTask;
  const TextTask task = ulp::models::text_model_tasks(name).front();
  const auto model = ulp::models::make_text_model(
      name, {.task = task, .max_length = kLength, .num_classes = 4, .padding_token = 0});
  model->eval();
  ulp::graph::CaptureOptions options;
  options.free = {{0, 1, "time"}};
  const Module module = ulp::capture(model, {torch::ones({2, kLength}, torch::kLong)}, options);
  module->eval();
  // Shorter where the batch is larger; the last ids of each text are padding.
  return {module, [](int64_t batch) {
            torch::Tensor ids = torch::randint(1, 256, {batch, kLength - batch + 1}, torch::kLong);
            ids.narrow(1, ids.size(1) - 4, 4).zero_();
            return ids;
          }};
}

/// A network of either registry.
inline Case network_case(const std::string& name) {
  const auto texts = ulp::models::text_model_names();
  const bool text = std::find(texts.begin(), texts.end(), name) != texts.end();
  return text ? text_network(name) : image_network(name);
}

}  // namespace ulp::bench
