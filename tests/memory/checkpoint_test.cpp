// Training reference networks under a plan gives the bits of training without one.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "memory/plans.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/bert.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/registry.h"

namespace {

using ulp::test::expect_the_same_step;

TEST(CheckpointedModels, GiveTheBitsOfTheModel) {
  for (const std::string name : {"resnet20", "mobilenet_v2", "mlp"}) {
    torch::manual_seed(1);
    const auto model = ulp::models::make_model(name, {.image_size = 16});
    model->train();
    const auto module = ulp::capture(model, {torch::randn({2, 3, 16, 16})});
    module->train();
    expect_the_same_step(*module, {torch::randn({4, 3, 16, 16})}, name);
  }
}

TEST(CheckpointedModels, TextModelsToo) {
  torch::manual_seed(1);
  ulp::models::BertConfig bert = ulp::models::BertConfig::tiny();
  bert.attention_dropout = bert.dropout = 0.1;
  ulp::models::Gpt2Config gpt2 = ulp::models::Gpt2Config::tiny();
  gpt2.attention_dropout = gpt2.dropout = 0.1;
  const std::vector<std::pair<std::string, std::shared_ptr<ulp::models::TextModel>>> models = {
      {"bert", ulp::models::make_bert(bert)}, {"gpt2", ulp::models::make_gpt2(gpt2)}};
  for (const auto& [name, model] : models) {
    model->train();
    const auto tokens = torch::randint(1, 200, {2, 12});
    const auto module = ulp::capture(model, {tokens});
    module->train();
    expect_the_same_step(*module, {torch::randint(1, 200, {3, 12})}, name);
  }
}

}  // namespace
