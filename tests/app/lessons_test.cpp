// What was pruned or quantized learns from the model as it was.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "error_of.h"
#include "temporary_folder.h"
#include "train/support.h"
#include "ulp/app/prune/prune.h"
#include "ulp/app/quantize/quantize.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/prune/masks/masks.h"

namespace ulp::app {
namespace {

using test::bars;
using test::small_model;

std::shared_ptr<graph::GraphModule> graph_of(models::ImageModel& model) {
  return capture(model, {torch::zeros({2, 1, 8, 8})});
}

FineTuning lessons(int64_t steps, std::vector<std::string> loss) {
  FineTuning training;
  training.options.batch = 16;
  training.options.max_steps = steps;
  training.loss = std::move(loss);
  return training;
}

TEST(Lessons, AreInTheRecipe) {
  PruneRecipe recipe{.recipe = prune::Recipe{}};
  recipe.training.loss = {"kd:T=2,alpha=0.5", "mse:3@fc1"};
  EXPECT_EQ(PruneRecipe::from_json(recipe.to_json()).training.loss, recipe.training.loss);
  EXPECT_EQ(recipe.training.lessons()->terms.size(), 2U);
  EXPECT_EQ(recipe.training.lessons()->labels, 0.5);
  EXPECT_FALSE(FineTuning().lessons());
  recipe.training.loss = {"teach"};
  EXPECT_ERROR(recipe.validate(), "got 'teach'");
}

TEST(Lessons, QuantizedNetworkLearnsFromItsFloatSelf) {
  const io::ImageDataset data = bars();
  const auto model = small_model();
  const auto graph = graph_of(*model);
  graph->eval();
  const at::Tensor x = torch::linspace(-1, 1, 128).reshape({2, 1, 8, 8}), before = graph->forward(x);
  // No labels: where the teacher is what the student is, there is little to learn.
  std::vector<double> losses;
  const QuantizedModel result =
      quantize_qat(graph, quant::QatRecipe{}, data, lessons(6, {"logits:1,alpha=0"}),
                   [&](const train::StepInfo& info, int64_t) { losses.push_back(info.loss); });
  ASSERT_EQ(losses.size(), 6U);
  for (const double loss : losses) EXPECT_LT(loss, 1);
  const at::NoGradGuard no_grad;
  EXPECT_LT((result.graph->forward(x) - before).abs().max().item<double>(),
            before.abs().max().item<double>());
}

TEST(Lessons, InterruptedRunContinuesToTheSameBits) {
  const io::ImageDataset data = bars();
  const test::TemporaryFolder folder;
  // An adapter and a memory are in the checkpoint.
  const std::vector<std::string> loss = {"kd:T=2,alpha=0.5", "crd:0.1,dim=8,negatives=16"};
  const auto logits = [&](const OnStep& on_step, const train::Checkpointing& saving) {
    const auto model = small_model();
    torch::manual_seed(7);  // of adapters and memories
    const QuantizedModel result =
        quantize_qat(graph_of(*model), quant::QatRecipe{}, data, lessons(6, loss), on_step, saving);
    const at::NoGradGuard no_grad;
    return result.graph->forward(torch::linspace(-1, 1, 128).reshape({2, 1, 8, 8}));
  };
  const at::Tensor expected = logits({}, {});
  const train::Checkpointing saving{.path = folder.path() / "run.ckpt", .every = 1, .resume = true};
  struct Ended {};
  EXPECT_THROW(logits(
                   [](const train::StepInfo& info, int64_t) {
                     if (info.step == 3) throw Ended();
                   },
                   saving),
               Ended);
  EXPECT_TRUE(expected.equal(logits({}, saving)));
}

PruneRun pruned(AnyPruneRecipe recipe, FineTuning training) {
  static const io::ImageDataset data = bars();
  const auto model = small_model();
  PruneRequest request{
      .model = "small",
      .captured = graph_of(*model),
      .recipe = {std::move(recipe), std::move(training)},
      .finetune = true,
      .train_batches = [](const train::StreamOptions& how) { return train::image_stream(data, how); },
      .test_batches = [] { return train::image_stream(data, {.batch = 32}); },
      .latency = false,
      .threads = 1};
  return run_prune(request);
}

TEST(Lessons, PrunedNetworkLearnsWhileItsMasksAreDrawn) {
  prune::Recipe recipe{.amount = prune::Amount::share(0.75, prune::AmountOf::all)};
  recipe.schedule.kind = prune::ScheduleKind::cubic;
  recipe.schedule.frequency = 2;
  recipe.schedule.end = 6;
  const PruneRun run = pruned(recipe, lessons(10, {"kd:T=2,alpha=0.5"}));
  int64_t zeros = 0, all = 0;
  for (const auto& [name, attribute] : run.model->graph().attributes()) {
    if (attribute.tensor.dim() < 2) continue;
    zeros += attribute.tensor.eq(0).sum().item<int64_t>();
    all += attribute.tensor.numel();
  }
  EXPECT_NEAR(static_cast<double>(zeros) / static_cast<double>(all), 0.75, 0.01);
}

TEST(Lessons, NetworkWithFewerChannelsLearnsFeatures) {
  // A linear layer joins the widths.
  const PruneRun run =
      pruned(prune::ChannelPruningRecipe{.share = 0.6}, lessons(4, {"mse:0.1@fc1", "kd:T=2,alpha=0.5"}));
  ASSERT_EQ(run.outcome.states.size(), 3U);
  EXPECT_LT(run.outcome.states[2].parameters, run.outcome.states[0].parameters);
  EXPECT_ERROR(pruned(prune::ChannelPruningRecipe{.share = 0.6}, lessons(4, {"mse:0.1@nothing"})),
               "'nothing'");
}

}  // namespace
}  // namespace ulp::app
