// A BERT of a few thousand weights, captured.
#pragma once

#include <torch/torch.h>

#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/bert.h"

namespace ulp::quant {

inline std::shared_ptr<graph::GraphModule> captured_bert(int64_t width, int64_t intermediate) {
  torch::manual_seed(3);
  const at::NoGradGuard no_grad;
  models::BertConfig config = models::BertConfig::tiny();
  config.width = width;
  config.intermediate = intermediate;
  const auto model = models::make_bert(config);
  model->eval();
  auto result = capture(model, {at::randint(0, 256, {2, 9})});
  result->eval();
  return result;
}

}  // namespace ulp::quant
