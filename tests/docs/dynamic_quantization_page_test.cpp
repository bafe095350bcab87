// The sample of docs/dynamic-quantization.md: a small network over tokens, quantized and run.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "dynamic-quantization/bert.includes.h"
#include "in_temporary_folder.h"
#include "ulp/models/text_registry.h"

namespace {

TEST(DynamicQuantizationPage, TheEngineRuns) {
  const ulp::docs::InTemporaryFolder here;
  torch::manual_seed(1);
  const int64_t batch = 2, length = 8;
  auto model = ulp::models::make_text_model(
      "bert", {.task = ulp::models::TextTask::classification, .max_length = length});
  model->eval();
  const auto tokens = torch::randint(1, 256, {batch, length}, torch::kLong);
  const int64_t* token_ids = tokens.const_data_ptr<int64_t>();
  std::vector<float> results(batch * 2, NAN);
  float* logits = results.data();
#include "dynamic-quantization/bert.inc"
  for (const float result : results) EXPECT_TRUE(std::isfinite(result));
}

}  // namespace
