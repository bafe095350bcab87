// Runs that are stopped and continued give the bits of runs that are not.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "error_of.h"
#include "support.h"
#include "ulp/base/error.h"
#include "ulp/io/safetensors.h"

namespace {

using namespace ulp::train;
using ulp::amp::MasterWeights;
using ulp::amp::MomentFormat;
using ulp::amp::ScalerKind;
using ulp::amp::ScalerSpec;
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
  const ulp::test::TemporaryFolder folder;
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
    {"Adam", {.optimizer = Optimizer::adam, .batch = 16}},
    {"AdamW", {.precision = "bf16", .optimizer = Optimizer::adamw, .batch = 16}},
    {"Accumulate", {.batch = 8, .accumulate = 3}},
    {"Clip", {.batch = 16, .clip = 0.1}},
    {"SkippedSteps", {.precision = "fp16", .init_scale = 1e12, .growth_interval = 2, .batch = 16}},
    {"Keras", {.precision = "fp16", .scaler = ScalerKind::keras, .growth_interval = 2, .batch = 16}},
    {"Keras2", {.precision = "fp16", .scaler = ScalerKind::keras2, .growth_interval = 2, .batch = 16}},
    {"Apex", {.precision = "fp16", .scaler = ScalerKind::apex, .growth_interval = 2, .batch = 16}},
    {"DeepSpeed", {.precision = "fp16", .scaler = ScalerKind::deepspeed, .growth_interval = 3, .batch = 16}},
    {"Static", {.precision = "fp16", .scaler = ScalerSpec::fixed(8), .batch = 16}},
    {"NoScaler", {.precision = "fp16", .scaler = ScalerKind::none, .batch = 16}},
    {"MastersFp32", {.precision = "bf16", .masters = MasterWeights::fp32, .batch = 16}},
    {"MastersSplit",
     {.precision = "bf16", .masters = MasterWeights::split, .optimizer = Optimizer::adamw, .batch = 16}},
    {"MomentsBf16",
     {.precision = "bf16",
      .masters = MasterWeights::split,
      .moments = MomentFormat::bf16,
      .optimizer = Optimizer::adamw,
      .batch = 16}},
    {"MomentsInt8",
     {.precision = "bf16",
      .masters = MasterWeights::split,
      .moments = MomentFormat::int8,
      .optimizer = Optimizer::adamw,
      .batch = 16},
     "resnet14"},
    {"MomentsInt4", {.moments = MomentFormat::int4, .optimizer = Optimizer::adam, .batch = 16}, "resnet14"},
    {"MomentsOfSgdInt8",
     {.moments = MomentFormat::int8, .fp32_moments = "*conv1*", .batch = 16, .clip = 0.1},
     "resnet14"},
    {"MastersStochastic", {.precision = "bf16", .masters = MasterWeights::stochastic, .batch = 16}},
    {"MastersKahan",
     {.precision = "bf16", .masters = MasterWeights::kahan, .batch = 8, .accumulate = 2, .clip = 0.1}},
    {"O1", {.precision = "O1", .batch = 16}},
    {"O2", {.precision = "O2", .optimizer = Optimizer::adam, .batch = 16}},
    {"O2BatchNorm", {.precision = "O2:bf16", .batch = 16}, "resnet14"},
    {"Fp8Delayed", {.precision = "fp8:delayed", .batch = 16}, "resnet14"},
    {"Fp8DelayedMasters",
     {.precision = "fp8:delayed", .masters = MasterWeights::split, .batch = 8, .accumulate = 2, .clip = 1.0}},
    {"Fp8Current", {.precision = "fp8:current", .optimizer = Optimizer::adamw, .batch = 16}},
    {"Nvfp4", {.precision = "nvfp4", .batch = 16}},
    {"Int8", {.precision = "int8", .optimizer = Optimizer::adamw, .batch = 16}},
    {"Int8Masters", {.precision = "int8:switchback", .masters = MasterWeights::split, .batch = 16}},
    {"O3", {.precision = "O3:bf16", .batch = 16}},
    {"Compiled", {.batch = 16, .compile = true}},
    {"CompiledClip", {.batch = 16, .momentum = 0, .compile = true, .clip = 0.1}},
    {"CompiledMomentsInt8",
     {.moments = MomentFormat::int8, .optimizer = Optimizer::adamw, .batch = 16, .compile = true}},
    {"Cosine", {.optimizer = Optimizer::adamw, .batch = 16, .schedule = ulp::amp::Schedule::cosine}},
};

INSTANTIATE_TEST_SUITE_P(Options, Resume, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ResumeErrors, AnotherRunIsRefusedByTheNamesOfWhatDiffers) {
  const ulp::test::TemporaryFolder folder;
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

/// The options in a checkpoint, as the build before described fields wrote them.
const char* const kStoredConfig =
    R"({"accumulate":1,"augment":true,"batch":16,"clip":null,"epochs":4,"growth_interval":null,)"
    R"("init_scale":null,"learning_rate":0.2,"masters":"none","max_steps":0,"moments":"fp32","momentum":0.9,)"
    R"("optimizer":"sgd","precision":"fp16","scaler":"SCALER","schedule":"triangle","seed":1,"warmup":0.25,)"
    R"("weight_decay":0.0005})";

std::string stored_config(const std::string& scaler) {
  std::string text = kStoredConfig;
  return text.replace(text.find("SCALER"), 6, scaler);
}

TEST(TrainOptionsJson, IsWhatOlderCheckpointsHold) {
  EXPECT_EQ((TrainOptions{.precision = "fp16", .batch = 16}.to_json()), stored_config("pytorch"));
  EXPECT_EQ((TrainOptions{.precision = "fp16", .scaler = ScalerSpec::fixed(8), .batch = 16}.to_json()),
            stored_config("static:8"));
  const auto narrow = nlohmann::json::parse(TrainOptions{.precision = "O2:bf16",
                                                         .optimizer = Optimizer::adamw,
                                                         .schedule = ulp::amp::Schedule::one_cycle,
                                                         .clip = 1}
                                                .to_json());
  EXPECT_EQ(narrow["masters"], "fp32");
  EXPECT_EQ(narrow["scaler"], "none");
  EXPECT_EQ(narrow["learning_rate"], 0.001);
  EXPECT_EQ(narrow["weight_decay"], 0.01);
  EXPECT_EQ(narrow["schedule"], "one_cycle");
  EXPECT_EQ(narrow["clip"], 1.0);
}

/// A checkpoint whose run was told its scaler so.
void respell_scaler(const std::filesystem::path& from, const std::filesystem::path& to,
                    const std::string& scaler) {
  ulp::io::TensorFile file = ulp::io::load_tensors(from);
  auto config = nlohmann::json::parse(file.metadata.at("ulp.config"));
  config.at("scaler") = scaler;
  file.metadata["ulp.config"] = config.dump();
  ulp::io::save_tensors(to, file.tensors, file.metadata);
}

TEST(TrainOptionsJson, AnOlderSpellingOfTheScalerResumes) {
  const ulp::test::TemporaryFolder folder;
  const auto data = bars();
  Trainer trainer(small_model(), data, {.precision = "fp16", .scaler = ScalerSpec::fixed(8), .batch = 16});
  trainer.step();
  trainer.save(folder / "run.ckpt");
  respell_scaler(folder / "run.ckpt", folder / "old.ckpt", "static:8.0");
  trainer.resume(folder / "old.ckpt");
  EXPECT_EQ(trainer.next_step(), 1);
  respell_scaler(folder / "run.ckpt", folder / "other.ckpt", "static:4");
  EXPECT_ERROR(trainer.resume(folder / "other.ckpt"), "scaler \"static:8\", got \"static:4\"");
}

/// A checkpoint of the run without its schedule.
void drop_schedule(const std::filesystem::path& from, const std::filesystem::path& to) {
  ulp::io::TensorFile file = ulp::io::load_tensors(from);
  int found = 0;
  for (auto& [key, text] : file.metadata) {
    auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("loader")) continue;
    found += static_cast<int>(json.erase("schedule"));
    text = json.dump();
  }
  EXPECT_EQ(found, 1);
  ulp::io::save_tensors(to, file.tensors, file.metadata);
}

TEST(ResumeErrors, ACheckpointWithoutTheSchedulesPlaceIsDamaged) {
  const ulp::test::TemporaryFolder folder;
  const auto data = bars();
  Trainer trainer(small_model(), data, {.batch = 16});
  trainer.step();
  trainer.save(folder / "run.ckpt");
  drop_schedule(folder / "run.ckpt", folder / "cut.ckpt");
  EXPECT_THROW(trainer.resume(folder / "cut.ckpt"), ulp::FileError);
}

TEST(ResumeErrors, MastersOfAnotherShapeAreDamaged) {
  const ulp::test::TemporaryFolder folder;
  const auto data = bars();
  Trainer trainer(small_model(), data, {.precision = "bf16", .masters = MasterWeights::fp32, .batch = 16});
  trainer.step();
  trainer.save(folder / "run.ckpt");
  ulp::io::TensorFile file = ulp::io::load_tensors(folder / "run.ckpt");
  int found = 0;
  for (auto& [name, tensor] : file.tensors) {
    if (!name.starts_with("optimizer.0.") || !name.ends_with("master")) continue;
    tensor = torch::zeros({3});
    ++found;
  }
  EXPECT_EQ(found, 1);
  ulp::io::save_tensors(folder / "bad.ckpt", file.tensors, file.metadata);
  EXPECT_THROW(trainer.resume(folder / "bad.ckpt"), ulp::FileError);
}

TEST(ResumeErrors, MissingOrForeignMomentsAreDamaged) {
  const ulp::test::TemporaryFolder folder;
  const auto data = bars();
  Trainer trainer(
      small_model(), data,
      {.precision = "bf16", .masters = MasterWeights::split, .optimizer = Optimizer::adamw, .batch = 16});
  trainer.step();
  trainer.save(folder / "run.ckpt");
  const ulp::io::TensorFile whole = ulp::io::load_tensors(folder / "run.ckpt");
  for (const std::string name : {"exp_avg", "exp_avg_sq", "master"}) {
    for (const bool drop : {true, false}) {
      ulp::io::TensorFile file = whole;
      for (auto& [key, tensor] : file.tensors) {
        if (key == "optimizer.0." + name) tensor = tensor.to(torch::kDouble);
      }
      if (drop)
        std::erase_if(file.tensors, [&](const auto& entry) { return entry.first == "optimizer.0." + name; });
      ulp::io::save_tensors(folder / "bad.ckpt", file.tensors, file.metadata);
      EXPECT_THROW(trainer.resume(folder / "bad.ckpt"), ulp::FileError) << name << drop;
    }
  }
}

}  // namespace
