#include "ulp/app/latency.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "ulp/app/prune.h"
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
  EXPECT_GT(meter(*prune::cut(*module, groups, half).module), 0);
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

/// Two batches of noise in two classes.
class Noise final : public train::BatchStream {
 public:
  std::optional<train::TaskBatch> next() override {
    if (done_++ == 2) return std::nullopt;
    return train::TaskBatch{torch::randn({4, 3, 32, 32}), torch::tensor({0, 1, 1, 0})};
  }
  int64_t samples() const override { return 8; }
  int64_t batches() const override { return 2; }
  int64_t epoch() const override { return 0; }
  std::string state() const override { return ""; }
  void restore(const std::string&) override {}

 private:
  int done_ = 0;
};

TEST(RunPrune, CutsByTheHessianInMeasuredWidths) {
  torch::manual_seed(1);
  const auto folder = std::filesystem::temp_directory_path() / ("ulp_run_prune_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  prune::WidthTable table;
  for (const auto kernel : {prune::WidthKernel::convolution, prune::WidthKernel::linear}) {
    prune::WidthCurve& curve = table.curves.emplace_back(prune::WidthCurve{.kernel = kernel, .points = {}});
    for (int64_t width = 4; width <= 128; width += 4) curve.points.push_back({width, double(width)});
  }
  table.save(folder / "widths.json");
  prune::CutRecipe recipe{.criterion = prune::Criterion::hessian,
                          .scope = prune::UnitScope::isomorphic,
                          .measured_widths = true,
                          .share = 0.6};
  PruneRequest request{.model = "lenet5",
                       .captured = capture(*models::make_model("lenet5"), {torch::randn({2, 3, 32, 32})}),
                       .recipe = {recipe},
                       .train_batches = [](const train::StreamOptions&) { return std::make_unique<Noise>(); },
                       .samples = 8,
                       .latency = false,
                       .width_table = folder / "widths.json",
                       .threads = 1};
  const PruneRun run = run_prune(request);
  ASSERT_EQ(run.outcome.states.size(), 2u);
  EXPECT_LT(run.outcome.states[1].macs, run.outcome.states[0].macs);
  ASSERT_FALSE(run.outcome.notes.empty());
  EXPECT_NE(run.outcome.notes[0].find("rounding widths kept"), std::string::npos) << run.outcome.notes[0];
  for (const char* layer : {"conv1.weight", "conv2.weight", "fc1.weight"})
    EXPECT_EQ(run.model->graph().find_attribute(layer)->tensor.size(0) % 4, 0) << layer;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ulp::app
