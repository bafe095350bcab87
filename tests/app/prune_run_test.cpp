// A whole run of pruning: what comes out, and what Ctrl-C leaves.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ulp/app/prune/prune.h"
#include "ulp/app/prune/prune_progress.h"
#include "ulp/app/train/prunes_while_training.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/io/checkpoint.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"

namespace ulp::app {
namespace {

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
  prune::ChannelPruningRecipe recipe{.criterion = prune::Criterion::hessian,
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

/// Half of the channels of LeNet-5 go, and it is trained on for two steps; stops where a stage of this title begins.
PruneRun stopped_at(const std::string& title, AnyPruneRecipe recipe) {
  torch::manual_seed(1);
  PruneRequest request{.model = "lenet5",
                       .captured = capture(*models::make_model("lenet5"), {torch::randn({2, 3, 32, 32})}),
                       .recipe = {std::move(recipe)},
                       .finetune = true,
                       .train_batches = [](const train::StreamOptions&) { return std::make_unique<Noise>(); },
                       .test_batches = [] { return std::make_unique<Noise>(); },
                       .samples = 8,
                       .latency = true,
                       .threads = 1};
  request.recipe.training.options.batch = 4;
  request.progress = [&](const Stage& stage) {
    if (stage.title == title) throw Interrupted();
  };
  return run_prune(request);
}

TEST(RunPrune, CtrlCKeepsWhatThereIs) {
  const prune::ChannelPruningRecipe cut{.share = 0.5};
  const prune::Recipe masks{.amount = prune::Amount::share(0.5, prune::AmountOf::all)};
  for (const char* title : {"evaluate pruned", "training on", "evaluate trained on", "measure latency"}) {
    SCOPED_TRACE(title);
    const PruneRun run = stopped_at(title, cut);
    EXPECT_TRUE(run.outcome.interrupted);
    ASSERT_NE(run.model, nullptr);
    EXPECT_LT(run.model->named_parameters()["conv2.weight"].size(0), 16);
    EXPECT_NE(run.structure.find("conv2.weight"), std::string::npos);
  }
  for (const char* title : {"training on", "evaluate trained on", "measure latency"}) {
    SCOPED_TRACE(title);
    const PruneRun run = stopped_at(title, masks);
    EXPECT_TRUE(run.outcome.interrupted);
    ASSERT_NE(run.model, nullptr);
    EXPECT_GT(run.model->named_parameters()["fc1.weight"].eq(0).sum().item<int64_t>(), 1000);
  }
  // Before anything is pruned there is nothing to keep.
  EXPECT_THROW(stopped_at("evaluate dense", cut), Interrupted);
  prune::ChannelPruningRecipe penalized = cut;
  penalized.lambda = 0.01;
  EXPECT_THROW(stopped_at("training on", penalized), Interrupted);
}

TEST(PenalizesWhileTraining, GivesItsStrengthsToTheRunThatGoesOn) {
  torch::manual_seed(1);
  const auto model = capture(*models::make_model("lenet5"), {torch::randn({2, 3, 32, 32})});
  train::Task task{.model = model,
                   .forward = [&](const train::TaskBatch& batch) { return model->forward(batch.inputs); },
                   .batches = std::make_unique<Noise>()};
  train::Trainer trainer(std::move(task), {.batch = 4, .max_steps = 30});
  const auto make = [&] {
    return PenalizesWhileTraining(model, prune::groups(model->graph(), {}),
                                  {.penalty = prune::Penalty::growing, .lambda = 0.01, .growth = 0.01},
                                  trainer);
  };
  const auto equal = [](const io::NamedTensors& one, const io::NamedTensors& other) {
    return std::ranges::equal(one, other, [](const auto& a, const auto& b) {
      return a.first == b.first && a.second.equal(b.second);
    });
  };
  PenalizesWhileTraining first = make(), second = make();
  first.begin(10, 1);
  const io::NamedTensors state = first.state();
  ASSERT_GT(state.size(), 1u);
  EXPECT_FALSE(equal(second.state(), state));
  second.restore(state);
  EXPECT_TRUE(equal(second.state(), state));
  EXPECT_THROW(second.restore({state[0]}), FileError);
  io::NamedTensors wrong = state;
  wrong[0].second = torch::ones({1}, torch::kDouble);
  EXPECT_THROW(second.restore(wrong), Error);
  EXPECT_TRUE(equal(second.state(), state));
}

/// A checkpoint of pruning that says so of itself, and holds nothing else.
TEST(RunPrune, ACheckpointThatLiesAboutItsTrainingIsRefused) {
  const auto file =
      std::filesystem::temp_directory_path() / ("ulp_prune_lies_" + std::to_string(getpid()) + ".ckpt");
  PruneRequest request{.model = "lenet5",
                       .captured = capture(*models::make_model("lenet5"), {torch::randn({2, 3, 32, 32})}),
                       .recipe = {prune::ChannelPruningRecipe{.share = 0.5, .steps = 2}},
                       .finetune = true,
                       .train_batches = [](const train::StreamOptions&) { return std::make_unique<Noise>(); },
                       .latency = false,
                       .threads = 1,
                       .saving = {.path = file, .resume = true}};
  const std::string recipe = request.recipe.to_json();
  for (const int64_t training : {1, 2, 99}) {
    const std::string task = describe({.training = training}, recipe, request.captured->graph());
    io::save_checkpoint(file, {.config = nlohmann::json{{"task", task}}.dump()});
    EXPECT_THROW(run_prune(request), FileError) << training;
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace ulp::app
