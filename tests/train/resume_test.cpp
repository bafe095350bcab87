// Runs that are stopped and continued give the bits of runs that are not.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support.h"
#include "ulp/base/error.h"
#include "ulp/io/checkpoint.h"

namespace {

using namespace ulp::train;
using ulp::test::bars;
using ulp::test::run_to;
using ulp::test::small_model;
using ulp::test::weights;

struct Case {
  const char* name;
  TrainOptions options;
  const char* model = "mlp";
};

class Resume : public ::testing::TestWithParam<Case> {};

TEST_P(Resume, GivesTheSameBits) {
  const ulp::test::TempFolder folder;
  const auto data = bars();
  const Case& param = GetParam();
  const auto whole = small_model(param.model);
  {
    Trainer trainer(whole, data, param.options);
    run_to(trainer, 9);
  }
  {
    Trainer trainer(small_model(param.model), data, param.options);
    run_to(trainer, 5);
    trainer.save(folder / "run.ckpt");
  }
  const auto resumed = small_model(param.model);
  torch::manual_seed(99);
  Trainer trainer(resumed, data, param.options);
  trainer.resume(folder / "run.ckpt");
  EXPECT_EQ(trainer.next_step(), 5);
  run_to(trainer, 9);
  EXPECT_TRUE(torch::equal(weights(*whole), weights(*resumed)));
}

const Case kCases[] = {
    {"Default", {.batch = 16}},
    {"BatchNorm", {.precision = "bf16", .batch = 16}, "resnet14"},
    {"Adam", {.optimizer = "adam", .batch = 16}},
    {"AdamW", {.precision = "bf16", .optimizer = "adamw", .batch = 16}},
    {"Accumulate", {.batch = 8, .accumulate = 3}},
    {"Clip", {.batch = 16, .clip = 0.1}},
    {"SkippedSteps", {.precision = "fp16", .batch = 16, .init_scale = 1e12, .growth_interval = 2}},
};

INSTANTIATE_TEST_SUITE_P(Options, Resume, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ResumeErrors, AnotherRunIsRefusedByTheNamesOfWhatDiffers) {
  const ulp::test::TempFolder folder;
  const auto data = bars();
  {
    Trainer trainer(small_model(), data, {.batch = 16});
    trainer.step();
    trainer.save(folder / "run.ckpt");
  }
  const auto model = small_model();
  const at::Tensor before = weights(*model);
  Trainer other(model, data, {.batch = 16, .accumulate = 2, .clip = 1.0});
  try {
    other.resume(folder / "run.ckpt");
    FAIL() << "it was taken";
  } catch (const ulp::FileError& error) {
    FAIL() << error.what();
  } catch (const ulp::Error& error) {
    EXPECT_NE(std::string(error.what()).find("accumulate 2, got 1"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("clip 1.0, got null"), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("batch"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(torch::equal(weights(*model), before));
}

TEST(ResumeErrors, ACheckpointWithoutTheSchedulesPlaceIsDamaged) {
  const ulp::test::TempFolder folder;
  const auto data = bars();
  Trainer trainer(small_model(), data, {.batch = 16});
  trainer.step();
  trainer.save(folder / "run.ckpt");
  const auto info = ulp::io::read_checkpoint_info(folder / "run.ckpt");
  const auto model = small_model();
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.2));
  ulp::io::save_checkpoint(folder / "other.ckpt",
                           {.model = model.get(), .optimizer = &optimizer, .step = 1, .config = info.config});
  EXPECT_THROW(trainer.resume(folder / "other.ckpt"), ulp::FileError);
}

}  // namespace
