#include <gtest/gtest.h>

#include <filesystem>

#include "error_of.h"
#include "temporary_folder.h"
#include "train/support.h"
#include "ulp/app/quantize/quantize_mode.h"
#include "ulp/app/quantize/quantize_report.h"
#include "ulp/graph/capture/capture.h"

namespace ulp::app {
namespace {

using test::bars;
using test::small_model;

std::shared_ptr<graph::GraphModule> captured(models::ImageModel& model) {
  return capture(model, {torch::zeros({2, 1, 8, 8})});
}

FineTuning few_steps(int64_t steps) {
  FineTuning training;
  training.options.batch = 16;
  training.options.max_steps = steps;
  return training;
}

TEST(QuantizeModes, EveryModeOfTheTableQuantizes) {
  const io::ImageDataset data = bars();
  for (const QuantizeMode& mode : quantize_modes()) {
    const auto model = small_model();
    int64_t last = 0, expected = 0;
    ModeRecipe recipe = mode.default_recipe();
    recipe.training = few_steps(4);
    const QuantizedModel result =
        mode.run({.captured = captured(*model),
                  .recipe = recipe,
                  .data = mode.needs_data ? std::optional<SplitData>(data) : std::nullopt,
                  .samples = 48,
                  .progress = [&](int64_t done, int64_t total, const std::string&) {
                    EXPECT_GT(done, last);
                    last = done;
                    expected = total;
                  }});
    EXPECT_EQ(last, expected) << mode.name;
    EXPECT_FALSE(result.report.changes.empty()) << mode.name;
    EXPECT_EQ(&mode_of(recipe.recipe), &mode);
    EXPECT_EQ(ModeRecipe::from_json(recipe.to_json()).to_json(), recipe.to_json()) << mode.name;
  }
  EXPECT_ERROR(find_quantize_mode("magic"), "static, qat, dynamic, weight-only");
}

TEST(QuantizeModes, WeightOnlyTakesDataWhereItsMethodDoes) {
  const QuantizeMode& mode = find_quantize_mode("weight-only");
  ModeRecipe recipe = mode.default_recipe();
  EXPECT_FALSE(needs_data(mode, recipe.recipe));
  EXPECT_TRUE(needs_data(find_quantize_mode("static"), quant::Recipe::x86_int8()));
  std::get<quant::WeightOnlyRecipe>(recipe.recipe).method = quant::WeightMethod::gptq;
  EXPECT_TRUE(needs_data(mode, recipe.recipe));
  EXPECT_EQ(ModeRecipe::from_json(recipe.to_json()).to_json(), recipe.to_json());
  const auto model = small_model();
  int64_t last = 0, expected = -1;
  const auto run = [&](const std::optional<SplitData>& data) {
    return mode.run({.captured = captured(*model),
                     .recipe = recipe,
                     .data = data,
                     .samples = 48,
                     .progress = [&](int64_t done, int64_t total, const std::string&) {
                       EXPECT_GT(done, last);
                       last = done;
                       expected = total;
                     }});
  };
  EXPECT_FALSE(run(SplitData(bars())).report.changes.empty());
  EXPECT_EQ(last, expected);
  EXPECT_ERROR(run(std::nullopt), "expected calibration samples for the method gptq");
}

TEST(QuantizeQat, TrainsTheModelAndIsRepeatable) {
  const io::ImageDataset data = bars();
  at::Tensor logits;
  for (int run = 0; run < 2; ++run) {
    const auto model = small_model();
    const at::Tensor before = test::weights(*model);
    std::vector<double> losses;
    const QuantizedModel result = quantize_qat(captured(*model), quant::QatRecipe{}, data, few_steps(30),
                                               [&](const train::StepInfo& info, int64_t total) {
                                                 EXPECT_EQ(total, 30);
                                                 losses.push_back(info.loss);
                                               });
    ASSERT_EQ(losses.size(), 30U);
    EXPECT_LT(losses.back(), 0.7 * losses.front());
    EXPECT_FALSE(before.equal(test::weights(*model)));
    const at::NoGradGuard no_grad;
    const at::Tensor got = result.graph->forward(torch::ones({2, 1, 8, 8}));
    if (run == 0) logits = got;
    EXPECT_TRUE(got.equal(logits));
  }
}

/// Ends at every step in turn, also between the last step and what follows it.
TEST(QuantizeQat, AnInterruptedRunContinuesToTheSameBits) {
  const io::ImageDataset data = bars();
  const test::TemporaryFolder folder;
  const auto logits = [&](const quant::QatRecipe& recipe, const OnStep& on_step,
                          const train::Checkpointing& saving) {
    const auto model = small_model();
    const QuantizedModel result = quantize_qat(captured(*model), recipe, data, few_steps(8), on_step, saving);
    const at::NoGradGuard no_grad;
    return result.graph->forward(torch::linspace(-1, 1, 128).reshape({2, 1, 8, 8}));
  };
  for (const auto learned : {quant::LearnedParameters::none, quant::LearnedParameters::scale}) {
    for (const auto folding : {quant::BatchNormFolding::fast, quant::BatchNormFolding::exact}) {
      quant::QatRecipe recipe;
      recipe.options.learned = learned;
      recipe.options.folding = folding;
      const at::Tensor expected = logits(recipe, {}, {});
      for (const int64_t last : {0, 3, 6, 7}) {
        const train::Checkpointing saving{.path = folder.path() / "run.ckpt", .every = 1, .resume = true};
        std::filesystem::remove(saving.path);
        struct Ended {};
        const auto end = [&](const train::StepInfo& info, int64_t) {
          if (info.step == last) throw Ended();
        };
        EXPECT_THROW(logits(recipe, end, saving), Ended);
        EXPECT_TRUE(expected.equal(logits(recipe, {}, saving))) << "ended in step " << last;
      }
      const train::Checkpointing saving{.path = folder.path() / "run.ckpt", .every = 1, .resume = true};
      EXPECT_TRUE(expected.equal(logits(recipe, {}, saving))) << "resumed at its end";
    }
  }
}

TEST(QuantizeQat, FreezesAfterItsShares) {
  quant::QatRecipe recipe;
  const quant::QatSchedule schedule = recipe.schedule(100);
  EXPECT_EQ(schedule.fake_quantize_from, 0);
  EXPECT_EQ(schedule.freeze_batch_norm_at, 50);
  EXPECT_EQ(schedule.freeze_observers_at, 75);
  recipe.freeze_batch_norm_after = recipe.freeze_observers_after = 1;
  EXPECT_EQ(recipe.schedule(100).freeze_observers_at, -1);
  EXPECT_EQ(recipe.schedule(100).freeze_batch_norm_at, -1);
  recipe.freeze_observers_after = 0;  // ranges must be seen once
  EXPECT_EQ(recipe.schedule(100).freeze_observers_at, 1);
  recipe.fake_quantize_after = 0.25;
  EXPECT_EQ(recipe.schedule(100).fake_quantize_from, 25);
}

TEST(QuantizeQat, RefusesOptionsByName) {
  const io::ImageDataset data = bars();
  const auto model = small_model();
  const auto error = [&](const FineTuning& training, const quant::QatRecipe& recipe = {}) {
    return test::error_of([&] { quantize_qat(captured(*model), recipe, data, training); });
  };
  quant::QatRecipe late;
  late.freeze_observers_after = 2;
  EXPECT_SAYS(error(few_steps(2), late), "freeze_observers_after in [0, 1], got 2");
  FineTuning training = few_steps(2);
  training.options.precision = "O3:bf16";
  EXPECT_SAYS(error(training), "fp32 parameters");
  training = few_steps(2);
  training.options.batch = 1000;
  EXPECT_SAYS(error(training), "batch");
}

TEST(ModeRecipe, QatHoldsItsTrainingToo) {
  const ModeRecipe read = ModeRecipe::from_json(R"({"type": "ulp.quant.QatRecipe", "version": 1,
      "tensors": {"skip_modules": ["fc"]}, "learned": "scale", "folding": "exact",
      "training": {"epochs": 3, "learning_rate": 0.5, "optimizer": "adamw"}})");
  const auto& recipe = std::get<quant::QatRecipe>(read.recipe);
  quant::QatRecipe expected;
  expected.tensors.skip_modules = {"fc"};
  expected.options = {.folding = quant::BatchNormFolding::exact, .learned = quant::LearnedParameters::scale};
  EXPECT_EQ(recipe, expected);
  EXPECT_EQ(read.training.options.epochs, 3);
  EXPECT_EQ(read.training.options.peak_rate(), 0.5);
  EXPECT_EQ(read.training.options.decay(), 1e-4);  // what is not said stays the mode's
  EXPECT_EQ(ModeRecipe::from_json(read.to_json()).to_json(), read.to_json());
  ModeRecipe chosen = read;  // a rate that the optimizer chooses is written as it is used
  chosen.training.options.learning_rate.reset();
  EXPECT_EQ(ModeRecipe::from_json(chosen.to_json()).training.options.peak_rate(), 0.001);
  const auto refused = [](const std::string& training) {
    return test::error_of([&] {
      ModeRecipe::from_json(R"({"type": "ulp.quant.QatRecipe", "version": 1, "training": )" + training + "}");
    });
  };
  EXPECT_SAYS(refused(R"({"epoch": 3})"), "'training.epoch'");
  EXPECT_SAYS(refused(R"({"epochs": "3"})"), "'training.epochs'");
  EXPECT_SAYS(refused(R"({"epochs": 0})"), "epochs");
  EXPECT_SAYS(refused("3"), "'training' to be an object");
}

TEST(ModeRecipe, TensorsMeanSomethingToEveryModeAndOthersAreNamed) {
  quant::Recipe tensors = quant::Recipe::x86_int8();
  tensors.skip_modules = {"fc"};
  const auto meant = [&](const char* mode, const quant::Recipe& recipe) {
    return recipe_for(find_quantize_mode(mode), {.recipe = recipe}).recipe;
  };
  EXPECT_EQ(std::get<quant::Recipe>(meant("static", tensors)), tensors);
  EXPECT_EQ(std::get<quant::QatRecipe>(meant("qat", tensors)).tensors, tensors);
  EXPECT_EQ(std::get<quant::DynamicRecipe>(meant("dynamic", tensors)).skip_modules, tensors.skip_modules);
  EXPECT_EQ(std::get<quant::WeightOnlyRecipe>(meant("weight-only", quant::Recipe::weight_only())).bits, 4);
  EXPECT_STREQ(mode_of(quant::Recipe::weight_only()).name, "weight-only");
  EXPECT_STREQ(mode_of(tensors).name, "static");
  EXPECT_ERROR(recipe_for(find_quantize_mode("static"), {.recipe = quant::DynamicRecipe{}}),
               "expected a recipe of mode static, got one of type ulp.quant.DynamicRecipe, which is for mode "
               "dynamic");
}

TEST(Calibrate, RefusesNoImagesAndNaN) {
  const auto model = small_model();
  EXPECT_ERROR(calibrate(captured(*model), quant::Recipe::x86_int8(), bars(), 0), "at least one calibration");
  io::ImageDataset data = bars();
  data.mean = {NAN};
  EXPECT_ERROR(quantize(captured(*model), quant::Recipe::x86_int8(), data, 16), "NaN values at 'input'");
}

QuantizeOutcome outcome() {
  QuantizeOutcome outcome{.model = "net",
                          .mode = "static",
                          .float_accuracy = train::Accuracy{.correct = 90, .total = 100},
                          .accuracy = train::Accuracy{.correct = 89, .total = 100},
                          .float_bytes = 4096,
                          .bytes = 1024,
                          .quantized = {"conv1 quantized"},
                          .reasons = {"softmax not quantized: it has no quantized form"},
                          .comparison = {},
                          .sensitivity = {},
                          .settings = {{"data", "bars"}}};
  outcome.comparison.push_back({"conv1", "aten::conv2d", "conv2d", true, {.mse = 1, .sqnr_db = 30}});
  outcome.comparison.push_back({"exact", "aten::relu", "relu", false, {.sqnr_db = INFINITY}});
  outcome.sensitivity.emplace();
  outcome.sensitivity->float_score = 90;
  outcome.sensitivity->layers.push_back({"conv1", "conv2d", {.sqnr_db = 12}, 85});
  return outcome;
}

TEST(QuantizeReport, HoldsTablesChartsAndReasons) {
  const report::Report report = quantize_report(outcome());
  EXPECT_EQ(report.headlines[0].value, "-1.00");
  EXPECT_EQ(report.headlines[1].value, "25 %");
  EXPECT_EQ(report.tables.size(), 5U);
  EXPECT_EQ(report.charts.size(), 2U);
  EXPECT_EQ(report.charts[0].series[0].x.size(), 1U);  // exact values have no noise to show
  EXPECT_EQ(std::get<double>(report.tables[2].rows[0].back()), -5.0);
  EXPECT_EQ(std::get<std::string>(report.tables[4].rows[0][0]),
            "softmax not quantized: it has no quantized form");
  EXPECT_EQ(report::Report::from_json(report.to_json()), report);
  EXPECT_NE(report.to_html().find("Sensitivity"), std::string::npos);
}

TEST(QuantizeReport, LeavesOutWhatWasNotAskedFor) {
  QuantizeOutcome plain = outcome();
  plain.comparison.clear();
  plain.sensitivity.reset();
  plain.accuracy.reset();
  plain.reasons.clear();
  const report::Report report = quantize_report(plain);
  EXPECT_EQ(report.tables.size(), 2U);
  EXPECT_TRUE(report.charts.empty());
  EXPECT_EQ(report.headlines.size(), 1U);
}

}  // namespace
}  // namespace ulp::app
