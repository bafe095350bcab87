// The sample of docs/loss-scaling.md: it compiles, it trains, and the page shows exactly this.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <sstream>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/optimizer/accumulate.h"
#include "ulp/amp/optimizer/schedule.h"
#include "ulp/amp/scaling/make_scaler.h"

namespace {

TEST(LossScalingDoc, TheSampleTrains) {
  torch::manual_seed(3);
  torch::nn::Linear model(4, 1);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  const auto wanted = torch::tensor({{1.0f}, {-2.0f}, {0.5f}, {0.0f}});
  std::vector<std::pair<torch::Tensor, torch::Tensor>> batches;
  for (int i = 0; i < 400; ++i) {
    const auto inputs = torch::randn({8, 4});
    batches.emplace_back(inputs, inputs.mm(wanted));
  }
  // clang-format off
// [sample]
auto scaler = ulp::amp::make_scaler("pytorch");
ulp::amp::LearningRateSchedule schedule(
    optimizer, ulp::amp::CosineRate{.total_steps = 100, .warmup = {.steps = 10}});
ulp::amp::GradientAccumulator accumulator(4);
for (const auto& [inputs, targets] : batches) {
  if (accumulator.is_first()) optimizer.zero_grad();
  torch::Tensor outputs;
  {
    const ulp::amp::Autocast guard(torch::kCPU, torch::kHalf);
    outputs = model->forward(inputs);
  }
  const auto loss = torch::mse_loss(outputs.to(torch::kFloat), targets);
  scaler.scale(accumulator.normalize(loss)).backward();
  if (accumulator.is_last()) {
    scaler.unscale_(optimizer);  // only because clipping looks at the gradients
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    schedule.advance(scaler.step(optimizer));
    scaler.update();
  }
  accumulator.advance();
}
  // [sample end]
  // clang-format on
  EXPECT_GE(schedule.step(), 95) << "a few steps are lost while the scale is found";
  EXPECT_LT((model->weight.detach().t() - wanted).abs().max().item<float>(), 0.1f);
}

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(ULP_SOURCE_DIR + path).rdbuf();
  return text.str();
}

std::string between(const std::string& text, const std::string& start, const std::string& end) {
  const size_t from = text.find(start) + start.size();
  return text.substr(from, text.find(end, from) - from);
}

TEST(LossScalingDoc, ThePageShowsThisSample) {
  const std::string shown = between(read("/docs/loss-scaling.md"), "```cpp\n", "```");
  const std::string compiled =
      between(read("/tests/amp/loss_scaling_doc_test.cpp"), "// [sample]\n", "  // [sample end]");
  EXPECT_GT(shown.size(), 500u);
  EXPECT_EQ(shown, compiled);
}

}  // namespace
