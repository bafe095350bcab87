// Every reference network, captured and proved equal to the original.
#include <sstream>

#include "same.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"
#include "ulp/models/unet.h"

namespace {

using namespace ulp;
using namespace ulp::test;

class Models : public ::testing::TestWithParam<std::string> {};

TEST_P(Models, EqualTheOriginalBitForBit) {
  torch::manual_seed(1);
  models::ModelOptions options{.in_channels = 3, .num_classes = 4, .image_size = 16};
  auto model = models::make_model(GetParam(), options);
  check(*model, {torch::randn({3, 3, options.image_size, options.image_size})});
}

class TextModels : public ::testing::TestWithParam<std::string> {};

TEST_P(TextModels, EqualTheOriginalBitForBit) {
  for (const models::TextTask task : models::text_model_tasks(GetParam())) {
    for (const int64_t padding : {-1, 0}) {
      torch::manual_seed(1);
      const auto model =
          models::make_text_model(GetParam(), {.task = task, .max_length = 8, .padding_token = padding});
      at::Tensor tokens = torch::randint(1, 256, {3, 7}, at::kLong);
      tokens.narrow(1, 5, 2).zero_();
      check(*model, {tokens});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TextModels, ::testing::ValuesIn(models::text_model_names()),
                         [](const auto& info) { return info.param; });

TEST(AttentionDropout, FollowsTheModeOfTheGraph) {
  torch::manual_seed(1);
  const auto model = models::make_text_model("bert", {.task = models::TextTask::classification});
  const auto captured = ulp::capture(*model, {torch::randint(1, 256, {2, 6}, at::kLong)});
  const auto listing = [&] {
    std::ostringstream out;
    out << captured->graph();
    return out.str();
  };
  EXPECT_NE(listing().find("dropout_p=training ? 0.1"), std::string::npos) << listing();
  graph::strip_training(captured->graph());
  captured->graph().verify();
  EXPECT_EQ(listing().find("training"), std::string::npos) << listing();
}

INSTANTIATE_TEST_SUITE_P(All, Models, ::testing::ValuesIn(models::model_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
