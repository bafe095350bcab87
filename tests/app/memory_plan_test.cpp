// What `ulp train` and `ulp memory` are told of activations and of the optimizer's state: texts, conflicts,
// and predictions
// against the meter.
#include "ulp/app/train/memory_plan.h"

#include <gtest/gtest.h>

#include "error_of.h"
#include "ulp/app/memory/memory.h"
#include "ulp/app/memory/memory_budget.h"
#include "ulp/app/train/checkpointed.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"

namespace {

using namespace ulp::app;
using ulp::amp::MomentFormat;
using ulp::memory::SavedFormat;
using ulp::memory::StorageLocation;
namespace train = ulp::train;

CheckpointRule rule(const char* text) {
  return CheckpointRule::from_text(text).value();
}

TEST(MemoryPlan, RulesAreTexts) {
  for (const char* text : {"none", "sqrt", "every:8", "bytes:2GiB", "bytes:4097"})
    EXPECT_EQ(rule(text).text(), text);
  EXPECT_EQ(rule("bytes:1.5kb").number, 1500);
  EXPECT_EQ(rule("every:12").number, 12);
  for (const char* text : {"", "SQRT", "every", "every:", "every:0", "every:-2", "every:3x", "every: 3",
                           "bytes:", "bytes:0", "bytes:apples", "2GiB"})
    EXPECT_FALSE(CheckpointRule::from_text(text)) << text;
}

TEST(MemoryPlan, OnlyLossyPlansMustBeSharedByAContinuedRun) {
  EXPECT_EQ(MemoryPlan{}.to_json(), "");
  const MemoryPlan exact{.checkpoint_activations = rule("sqrt"),
                         .activation_masks = true,
                         .offload_activations = StorageLocation::file,
                         .offload_optimizer = StorageLocation::file};
  EXPECT_EQ(exact.to_json(), "");
  const MemoryPlan lossy{.checkpoint_activations = rule("every:3"), .activations = SavedFormat::int8};
  EXPECT_EQ(lossy.to_json(),
            R"({"activation_masks":false,"activations":"int8","checkpoint_activations":"every:3"})");
}

TEST(MemoryPlan, WhatDoesNotGoTogetherIsSaid) {
  EXPECT_FALSE(MemoryPlan{}.conflict());
  EXPECT_ERROR(MemoryPlan{.offload_activations = StorageLocation::host}.validate(),
               "offload_activations 'host' is for a model on a GPU");
  EXPECT_ERROR(MemoryPlan{.offload_optimizer = StorageLocation::host}.validate(),
               "offload_optimizer 'file' needs less");
  EXPECT_ERROR(
      (MemoryPlan{.checkpoint_activations = rule("bytes:1GiB"), .activations = SavedFormat::int4}.validate()),
      "exclude each other");
  EXPECT_ERROR(MemoryPlan{.offload_folder = "/tmp"}.validate(), "offload_folder is for");
  EXPECT_ERROR(
      (MemoryPlan{.offload_optimizer = StorageLocation::file, .offload_folder = "/no/such"}.validate()),
      "got '/no/such': No such file");
  const MemoryPlan offloaded{.offload_optimizer = StorageLocation::file};
  train::TrainOptions bare;
  bare.precision = "O3:bf16";
  EXPECT_TRUE(offloaded.conflict_with(bare));
  bare.masters = ulp::amp::MasterWeights::split;
  EXPECT_FALSE(offloaded.conflict_with(bare));
  EXPECT_FALSE(offloaded.conflict_with({}));
}

struct PlanCase {
  const char* model;
  const char* precision;
  int64_t batch;
  int64_t length;
  MemoryPlan plan;
  MomentFormat moments = MomentFormat::fp32;
};

MemoryQuestion question_of(const PlanCase& asked) {
  MemoryQuestion question{.plan = asked.plan, .length = asked.length, .prove = true};
  question.options.precision = asked.precision;
  question.options.optimizer = train::Optimizer::adamw;
  question.options.moments = asked.moments;
  question.options.batch = asked.batch;
  return question;
}

MemoryAnswer ask_with_plan(const PlanCase& asked) {
  return ask_memory(find_workload(asked.model, {.image = {3, 16, 16}, .length = 64}), question_of(asked));
}

TEST(MemoryPlan, PredictionsAreWithin3PercentUnderEveryPlan) {
  for (const PlanCase& one :
       {PlanCase{"resnet20", "fp32", 50, 0, {.checkpoint_activations = rule("sqrt")}},
        {"resnet20", "bf16", 50, 0, {.activations = SavedFormat::int8, .activation_masks = true}},
        {"resnet20", "fp32", 50, 0, {.checkpoint_activations = rule("bytes:8MiB")}},
        {"resnet20", "fp8:delayed", 40, 0, {.checkpoint_activations = rule("sqrt")}, MomentFormat::int8},
        {"resnet20", "fp8:current", 40, 0, {}},
        {"mobilenet_v2",
         "fp32",
         24,
         0,
         {.checkpoint_activations = rule("every:5"), .activation_masks = true}},
        {"bert", "bf16", 40, 32, {.checkpoint_activations = rule("every:8")}, MomentFormat::int8},
        {"bert", "int8", 40, 32, {.checkpoint_activations = rule("sqrt")}},
        {"gpt2", "fp32", 33, 32, {.activations = SavedFormat::int4}, MomentFormat::int4},
        {"gpt2", "mxfp8", 33, 32, {.checkpoint_activations = rule("sqrt")}},
        {"mlp", "fp32", 300, 0, {.offload_optimizer = StorageLocation::file}}}) {
    const MemoryAnswer answer = ask_with_plan(one);
    const auto predicted = static_cast<double>(answer.prediction.peak_bytes);
    const auto measured = static_cast<double>(answer.measured_bytes.value());
    EXPECT_GE(predicted, 0.98 * measured) << one.model << ' ' << one.precision << ' ' << one.plan.to_json();
    EXPECT_LE(predicted, 1.03 * measured) << one.model << ' ' << one.precision << ' ' << one.plan.to_json();
    const auto most = [&](ulp::memory::Category category) {
      return answer.prediction.largest[static_cast<size_t>(category)];
    };
    EXPECT_GT(most(ulp::memory::Category::activations), most(ulp::memory::Category::inputs))
        << one.model << ' ' << one.precision;
  }
}

TEST(MemoryPlan, PlansTakeLess) {
  const auto peak = [](const MemoryPlan& plan) {
    return ask_with_plan({"resnet20", "fp32", 50, 0, plan}).measured_bytes.value();
  };
  const int64_t whole = peak({});
  for (const MemoryPlan& plan :
       {MemoryPlan{.checkpoint_activations = rule("sqrt")}, MemoryPlan{.activations = SavedFormat::bf16},
        MemoryPlan{.activations = SavedFormat::int8}, MemoryPlan{.offload_optimizer = StorageLocation::file}})
    EXPECT_LT(peak(plan), whole) << CheckpointRule(plan.checkpoint_activations).text() << ' '
                                 << ulp::enum_name(plan.activations);
}

TEST(MemoryPlan, ABudgetOfBytesIsThatOfTheAskedBatch) {
  const Workload model = find_workload("resnet20", {.image = {3, 16, 16}});
  train::TrainOptions options;
  options.batch = 48;
  options.momentum = 0;  // what else lives at the peak is parameters and their gradients
  const MakeTask make = [&](ulp::memory::RunSize size) { return model.task(size); };
  const auto measured = [&](const MemoryPlan& plan) {
    const CheckpointChoice choice(make, options, {.batch = 48}, plan);
    const MakeTask planned = [&](ulp::memory::RunSize size) {
      train::Task task = make(size);
      choice.apply(task);
      return task;
    };
    return measure_training({.make = planned}, options, {.batch = 48});
  };
  const int64_t whole = measured({}), budget = whole / 2;
  const int64_t less =
      measured({.checkpoint_activations = {.kind = CheckpointRule::Kind::bytes, .number = budget}});
  EXPECT_LT(less, whole * 7 / 10);
  EXPECT_LT(less, budget * 125 / 100) << "parameters, gradients and work space lie on top";
  EXPECT_ERROR(measured({.checkpoint_activations = rule("bytes:1KiB")}), "expected");
}

TEST(MemoryPlan, QuestionsThatCannotBeAnsweredAreRefused) {
  EXPECT_ERROR(ask_with_plan({"mlp", "fp32", 8, 0, {.offload_activations = StorageLocation::file}}),
               "expected activations in memory");
  MemoryQuestion question = question_of({"mlp", "fp32", 8, 0, {}});
  question.fp8 = ulp::amp::Fp8Recipe::named("fp8:current");
  EXPECT_ERROR(ask_memory(find_workload("mlp", {}), question), "expected an fp8 precision");
}

TEST(MemoryPlan, AnFp8RecipeCountsTheLayersThatItNames) {
  PlanCase asked{"resnet20", "fp8:current", 40, 0, {}};
  const int64_t most = ask_with_plan(asked).prediction.peak_bytes;
  MemoryQuestion question = question_of(asked);
  question.fp8 = ulp::amp::Fp8Recipe::named("fp8:current");
  question.fp8->skip_modules = {"*conv1*"};
  const MemoryAnswer none = ask_memory(find_workload("resnet20", {.image = {3, 16, 16}}), question);
  EXPECT_NE(none.prediction.peak_bytes, most);
  EXPECT_LE(static_cast<double>(none.prediction.peak_bytes),
            1.03 * static_cast<double>(*none.measured_bytes));
  EXPECT_GE(static_cast<double>(none.prediction.peak_bytes),
            0.98 * static_cast<double>(*none.measured_bytes));
}

/// A job for a drawn network whose activations can be computed again.
BudgetJob job_of(const Workload& model, const train::TrainOptions& options) {
  const MakeTask make = [model](ulp::memory::RunSize size) {
    return model.task({size.batch, usual_length(model)});
  };
  const auto checkpointed = [=](double share) -> std::optional<TrainingProgram> {
    try {
      const CheckpointChoice choice(make, options, {.batch = options.batch, .length = usual_length(model)},
                                    {}, share);
      return TrainingProgram{.make = [=](ulp::memory::RunSize size) {
        train::Task task = make(size);
        choice.apply(task);
        return task;
      }};
    } catch (const ulp::Error&) {  // nothing keeps so little
      return std::nullopt;
    }
  };
  return {.program = {.make = make}, .checkpointed = checkpointed, .options = options};
}

TEST(MemoryBudget, PrecisionsOf8BitsAreCheckpointed) {
  for (const char* precision : {"fp8:delayed", "fp8:current", "int8"}) {
    const bool text = std::string(precision) == "int8";
    const Workload model = find_workload(text ? "bert" : "resnet20", {.image = {3, 16, 16}, .length = 64});
    train::TrainOptions options;
    options.precision = precision;
    options.batch = text ? 64 : 32;
    BudgetJob job = job_of(model, options);
    job.batch_norm = true;  // checkpointing comes first
    const int64_t whole = measure_training(job.program, options, {.batch = options.batch});
    job.budget = whole * 90 / 100;
    const BudgetChoice choice = fit_to_budget(job);
    ASSERT_LT(choice.kept_share, 1) << precision;
    EXPECT_EQ(choice.options.batch, options.batch) << precision;
    const int64_t peak = measure_training(choice.program, choice.options, {.batch = options.batch});
    EXPECT_LE(peak, job.budget) << precision;
    EXPECT_LE(static_cast<double>(choice.predicted_bytes), 1.03 * static_cast<double>(peak)) << precision;
  }
}

TEST(MemoryBudget, MomentsGetNarrowerAsTheBudgetDoes) {
  const Workload model = find_workload("mlp", {.image = {1, 28, 28}});
  BudgetJob job{.program = {.make = [model](ulp::memory::RunSize size) { return model.task(size); }}};
  job.options.optimizer = train::Optimizer::adamw;
  job.options.batch = 1;
  const auto peak_with = [&](MomentFormat moments) {
    train::TrainOptions options = job.options;
    options.moments = moments;
    return measure_training(job.program, options, {.batch = 1});
  };
  for (const MomentFormat moments : {MomentFormat::bf16, MomentFormat::int8, MomentFormat::int4}) {
    job.budget = peak_with(moments) * 103 / 100;
    const BudgetChoice choice = fit_to_budget(job);
    EXPECT_EQ(choice.options.moments, moments) << ulp::enum_name(moments);
    ASSERT_EQ(choice.changes.size(), 1U);
    EXPECT_EQ(choice.changes[0].find(std::string(ulp::enum_name(moments)) + " moments: "), 0U)
        << choice.changes[0];
    const auto measured = static_cast<double>(peak_with(moments));
    EXPECT_GE(static_cast<double>(choice.predicted_bytes), 0.98 * measured);
    EXPECT_LE(static_cast<double>(choice.predicted_bytes), 1.03 * measured);
  }
  job.options.precision = "O3:bf16";  // bare parameters: LibTorch makes the step
  EXPECT_ERROR(fit_to_budget(job), "expected a budget of at least");
}

}  // namespace
