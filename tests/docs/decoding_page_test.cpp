// The samples of docs/decoding.md: a small decoder writes on from three tokens, and a sampler chooses one.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <span>
#include <vector>

#include "decoding/decode.includes.h"
#include "decoding/sampler.includes.h"
#include "in_temporary_folder.h"
#include "ulp/models/text_registry.h"

namespace {

TEST(DecodingPage, AnEngineWritesOn) {
  const ulp::docs::InTemporaryFolder here;
  const auto network = ulp::models::make_text_model("gpt2", {});
  network->eval();
  auto& model = *network;
  const torch::NoGradGuard no_grad;
  const auto tokens = torch::randint(256, {2, 256}, torch::kLong);
  const int64_t vocabulary = 256;
#include "decoding/decode.inc"
  ASSERT_EQ(text.size(), 10U);
  const auto whole = torch::tensor(text).unsqueeze(0);
  for (int64_t i = 2; i + 1 < 10; ++i) {
    const auto scores = model.forward(whole.narrow(1, 0, i + 1)).select(1, i)[0];
    EXPECT_NEAR(scores[text[static_cast<size_t>(i + 1)]].item<float>(), scores.max().item<float>(), 1e-3);
  }
}

TEST(DecodingPage, ASamplerChoosesATokenOfTheLikeliest) {
  std::vector<float> scores(20, -30);
  scores[5] = 3;
  scores[12] = 3;
  const std::span<const float> logits(scores);
#include "decoding/sampler.inc"
  ASSERT_EQ(text.size(), 4U);
  EXPECT_TRUE(text.back() == 5 || text.back() == 12);
}

}  // namespace
