// Tasks that say what stays of the forward pass, and where the optimizer keeps its state.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "error_of.h"
#include "support.h"
#include "ulp/graph/graph_module.h"
#include "ulp/memory/checkpoint/plan.h"

namespace {

using namespace ulp;
using test::bars;
using test::run_to;
using test::small_model;
using test::weights;
using train::TrainOptions;

using PlanOf = std::function<memory::CheckpointPlan(const graph::GraphModule&)>;

struct Planned {
  std::string name;
  PlanOf plan;
};

memory::CheckpointPlan every(const graph::GraphModule& model, int64_t calls,
                             memory::SavedOptions saved = {}) {
  memory::CheckpointPlan plan = memory::plan_every(model.graph(), calls);
  plan.saved = std::move(saved);
  return plan;
}

const Planned kExact[] = {
    {"sqrt", [](const auto& model) { return memory::plan_sqrt(model.graph()); }},
    {"every 3", [](const auto& model) { return every(model, 3); }},
    {"masks", [](const auto& model) { return every(model, 1000, {.masks = true, .smallest = 0}); }},
    {"file",
     [](const auto& model) {
       return every(model, 5, {.place = memory::StorageLocation::file, .smallest = 0});
     }},
};

train::Task task_of(const std::shared_ptr<models::ImageModel>& model, const io::ImageDataset& data,
                    const TrainOptions& options, const PlanOf& plan,
                    const amp::OffloadOptions& offload = {}) {
  train::Task task = train::image_task(
      model, train::image_stream(
                 data, train::StreamOptions::training(options.batch, options.seed, options.augment)));
  task.activations = plan;
  task.offload = offload;
  return task;
}

at::Tensor trained(const std::string& name, const TrainOptions& options, const PlanOf& plan,
                   const amp::OffloadOptions& offload = {}) {
  const auto data = bars();
  const auto model = small_model(name);
  train::Trainer trainer(task_of(model, data, options, plan, offload), options);
  run_to(trainer, 4);
  return weights(*model);
}

TEST(Activations, ExactPlansTrainTheWeightsOfARunWithoutOne) {
  for (const TrainOptions& options :
       {TrainOptions{.batch = 16}, TrainOptions{.precision = "bf16", .batch = 8, .accumulate = 3},
        TrainOptions{.precision = "O2", .masters = amp::MasterWeights::fp32, .batch = 16, .clip = 0.5},
        TrainOptions{.precision = "fp8:delayed", .batch = 16, .accumulate = 2},
        TrainOptions{.precision = "mxfp8", .batch = 16}, TrainOptions{.precision = "int8", .batch = 16}}) {
    for (const char* model : {"mlp", "resnet14"}) {
      if (options.precision->int8 && std::string(model) != "mlp") continue;  // it has no linear layer between
      const at::Tensor expected = trained(model, options, {});
      for (const Planned& planned : kExact) {
        EXPECT_TRUE(trained(model, options, planned.plan).equal(expected))
            << model << ", " << options.precision.name() << ", " << planned.name;
      }
    }
  }
}

TEST(Activations, LossyFormatsTrainOtherWeightsOfTheSameSize) {
  const TrainOptions options{.batch = 16};
  const at::Tensor exact = trained("resnet14", options, {});
  at::Tensor before;
  for (const auto format :
       {memory::SavedFormat::bf16, memory::SavedFormat::int8, memory::SavedFormat::int4}) {
    const at::Tensor found = trained("resnet14", options, [&](const auto& model) {
      return every(model, 1000, {.format = format, .smallest = 0});
    });
    EXPECT_FALSE(found.equal(exact)) << enum_name(format);
    EXPECT_LT((found - exact).norm().item<double>(), 0.5 * exact.norm().item<double>()) << enum_name(format);
  }
}

struct ResumedPlan {
  const char* name;
  TrainOptions options;
  memory::SavedOptions saved = {};
  bool files = false;
};

TEST(Activations, ResumedRunsDrawTheSameNumbers) {
  for (const ResumedPlan& one :
       {ResumedPlan{"int8", {.batch = 16}, {.format = memory::SavedFormat::int8, .smallest = 0}},
        ResumedPlan{
            "int4", {.batch = 8, .accumulate = 2}, {.format = memory::SavedFormat::int4, .smallest = 0}},
        ResumedPlan{"exact in a file",
                    {.batch = 16},
                    {.place = memory::StorageLocation::file, .smallest = 0},
                    true}}) {
    const test::TemporaryFolder folder, states;
    const auto data = bars();
    const PlanOf plan = [&](const auto& model) { return every(model, 4, one.saved); };
    const amp::OffloadOptions offload{.state_folder = one.files ? states.path().string() : ""};
    const auto whole = small_model("resnet14");
    {
      train::Trainer trainer(task_of(whole, data, one.options, plan, offload), one.options);
      run_to(trainer, 7);
    }
    {
      train::Trainer trainer(task_of(small_model("resnet14"), data, one.options, plan, offload), one.options);
      run_to(trainer, 3);
      trainer.save(folder / "run.ckpt");
    }
    const auto resumed = small_model("resnet14");
    train::Trainer trainer(task_of(resumed, data, one.options, plan, offload), one.options);
    trainer.resume(folder / "run.ckpt");
    run_to(trainer, 7);
    EXPECT_TRUE(weights(*resumed).equal(weights(*whole))) << one.name;
  }
}

/// Bytes of deleted or nameless files of a folder that this process has mapped.
int64_t mapped_bytes(const std::filesystem::path& folder) {
  std::ifstream maps("/proc/self/maps");
  int64_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(folder.string()) == std::string::npos) continue;
    bytes += std::stoll(line.substr(line.find('-') + 1), nullptr, 16) - std::stoll(line, nullptr, 16);
  }
  return bytes;
}

TEST(Activations, OffloadedStateLiesInFilesWithoutNamesAndHasTheSameBits) {
  const test::TemporaryFolder folder;
  for (const TrainOptions& options :
       {TrainOptions{.batch = 16}, TrainOptions{.optimizer = train::Optimizer::adamw, .batch = 16},
        TrainOptions{.precision = "bf16",
        .masters = amp::MasterWeights::split,
        .moments = amp::MomentFormat::int8,
        .optimizer = train::Optimizer::adam,
        .batch = 16}}) {
    // A norm that no gradient has makes the step amp::fused_step, as state in files does: LibTorch's own
    // steps have other bits on processors without AVX2.
    TrainOptions fused = options;
    fused.clip = 1e9;
    const at::Tensor expected = trained("resnet14", fused, {});
    EXPECT_TRUE(trained("resnet14", options, {}, {.state_folder = folder.path().string()}).equal(expected))
        << options.precision.name();
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
  const TrainOptions options{.optimizer = train::Optimizer::adamw, .batch = 16};
  const auto data = bars();
  train::Trainer trainer(
      task_of(small_model("resnet14"), data, options, {}, {.state_folder = folder.path().string()}), options);
  run_to(trainer, 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_GT(mapped_bytes(folder.path()), 100'000);
}

TEST(Activations, WhatCannotBePlannedIsRefused) {
  const auto data = bars();
  const TrainOptions options{.batch = 16};
  train::Task parts = task_of(small_model(), data, options, kExact[0].plan);
  parts.parallel.zero = distributed::ZeroStage::parameters;
  EXPECT_ERROR(train::Trainer(std::move(parts), options), "expected all of the model in each process");
  train::Task bare = task_of(small_model(), data, options, kExact[0].plan);
  bare.model = torch::nn::Linear(64, 4).ptr();
  EXPECT_ERROR(train::Trainer(std::move(bare), options), "capture it first");
  train::Task nowhere =
      task_of(small_model("resnet14"), data, options, {}, {.state_folder = "/no/such/folder"});
  train::Trainer trainer(std::move(nowhere), options);
  EXPECT_ERROR(trainer.step(), "/no/such/folder");
}

}  // namespace
