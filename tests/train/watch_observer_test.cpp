// A trainer with a watch looking on.
#include "ulp/train/watch_observer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ulp/base/error.h"

namespace {

using namespace ulp;

TEST(WatchObserver, TellsSampledAndSkippedStepsOnce) {
  torch::nn::Linear layer(3, 2);
  train::WatchObserver observer(*layer, {.every = 4});
  std::vector<std::string> news;
  for (int64_t step = 10; step < 14; ++step) {
    observer.begin(step, 256);
    layer->weight.mutable_grad() = torch::full({2, 3}, step == 11 ? INFINITY : 1.0F);
    observer.gradients(*layer, 256);
    const auto result = step == 11 ? amp::StepResult::skipped_nonfinite : amp::StepResult::stepped;
    observer.end({.step = step, .loss = 1.0, .scale = 256, .result = result});
    if (const auto line = observer.news()) news.push_back(*line);
    EXPECT_FALSE(observer.news());
  }
  ASSERT_EQ(news.size(), 3u);  // the first, the skipped one, and the one after it, which is also its turn
  EXPECT_TRUE(news[0].starts_with("step 10, fp16: ")) << news[0];
  EXPECT_TRUE(news[1].starts_with("step 11, skipped: gradient of weight: inf")) << news[1];
  EXPECT_TRUE(news[2].starts_with("step 12, fp16: ")) << news[2];
  const report::Report report = observer.report("run", {{"model", "linear"}});
  EXPECT_EQ(report.charts.size(), 4u);
  EXPECT_EQ(report.charts[3].series[0].x, (std::vector<double>{10, 11, 12, 13}));
  EXPECT_NE(report.to_html().find("Skipped steps"), std::string::npos);
}

TEST(WatchObserver, ALossThatIsNotFiniteIsTheCauseWhereGradientsAreFinite) {
  torch::nn::Linear layer(3, 2);
  train::WatchObserver observer(*layer);
  for (const auto& [loss, word] : {std::pair<double, std::string>{-NAN, "nan"}, {-INFINITY, "-inf"}}) {
    observer.begin(3, 256);
    layer->weight.mutable_grad() = torch::zeros({2, 3});
    observer.gradients(*layer, 256);
    observer.end({.step = 3, .loss = loss, .scale = 256, .result = amp::StepResult::skipped_nonfinite});
    EXPECT_EQ(observer.news(), "step 3, skipped: the loss is " + word + "; all gradients are finite");
  }
}

TEST(WatchObserver, ExplainsAStepThatThrew) {
  torch::nn::Linear layer(3, 2);
  train::WatchObserver observer(*layer);
  EXPECT_EQ(observer.explanation(), "");
  observer.begin(0, 1);
  (void)(layer(torch::ones({1, 3})) * 0).log();
  EXPECT_EQ(observer.explanation(), "step 0: forward: aten::log, [0, 0] is -inf, from finite inputs");
  observer.begin(0, 1);  // and may go on
  observer.gradients(*layer, 1);
  observer.end({.step = 0});
}

}  // namespace
