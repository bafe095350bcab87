#include "ulp/app/prune/latency.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "ulp/app/prune/prune.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"
#include "ulp/prune/structured/latency_target.h"

namespace ulp::app {
namespace {

TEST(LatencyMeter, MeasuresNetworksAndTheirCuts) {
  torch::manual_seed(1);
  const auto module = capture(*models::make_model("lenet5"), {torch::randn({2, 3, 32, 32})});
  module->train();
  torch::manual_seed(1);
  const auto before = torch::rand({1});
  torch::manual_seed(1);
  LatencyMeter meter(*module, {.batch = 2, .threads = 1, .rounds = 1, .round_seconds = 0.001});
  EXPECT_GT(meter(*module), 0);
  EXPECT_TRUE(torch::equal(torch::rand({1}), before)) << "the random state moved";
  EXPECT_TRUE(module->is_training());

  const auto groups = prune::groups(module->graph());
  const auto scores = prune::importance(*module, groups);
  prune::Removals half = prune::select_units(groups, scores, {.amount = 0.5});
  EXPECT_GT(meter(*prune::remove_units(*module, groups, half).module), 0);
}

TEST(LatencyMeter, TakesSeveralInputs) {
  struct Net : torch::nn::Module {
    torch::nn::Linear fc = register_module("fc", torch::nn::Linear(4, 3));
    at::Tensor forward(const at::Tensor& a, const at::Tensor& b) { return fc(a + b); }
  } net;
  const auto module = capture(net, {torch::randn({2, 4}), torch::randn({2, 4})});
  LatencyMeter meter(*module, {.batch = 3, .threads = 1, .rounds = 1, .round_seconds = 0.001});
  EXPECT_GT(meter(*module), 0);
}

TEST(LatencyMeter, MakesATableOfWidths) {
  const auto table =
      measure_width_table({.kernels = {prune::WidthKernel::linear, prune::WidthKernel::depthwise},
                           .widths = {4, 8},
                           .outer = 4,
                           .image = 3,
                           .repeats = 1},
                          {.threads = 1, .rounds = 1, .round_seconds = 0.001});
  EXPECT_NO_THROW(table.validate());
  EXPECT_EQ(table.curves.size(), 2u);
  EXPECT_FALSE(table.machine.empty());
}

}  // namespace
}  // namespace ulp::app
