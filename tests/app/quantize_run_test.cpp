#include "ulp/app/quantize/quantize_run.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "error_of.h"
#include "train/support.h"
#include "ulp/graph/capture/capture.h"

namespace ulp::app {
namespace {

using test::bars;
using test::small_model;

struct Case {
  io::ImageDataset data = bars();
  std::shared_ptr<models::ImageModel> model = small_model();

  QuantizeRequest request(const char* mode) {
    QuantizeRequest request;
    request.model = "mlp";
    request.captured = capture(*model, {torch::zeros({2, 1, 8, 8})});
    request.mode = &find_quantize_mode(mode);
    request.recipe = request.mode->default_recipe();
    request.data = request.test = data;
    request.recipe.training.options.batch = 16;
    request.recipe.training.options.max_steps = 6;
    request.recipe.training.options.learning_rate = 0.1;
    return request;
  }
};

TEST(RunQuantize, FillsInTheWholeOutcomeStageByStage) {
  Case setup;
  QuantizeRequest request = setup.request("static");
  request.sensitivity = request.compare = true;
  request.keep_worst = 1;
  std::vector<std::string> stages;
  request.progress = [&](const Stage& stage) {
    EXPECT_LE(stage.done, stage.total) << stage.title;
    if (stages.empty() || stages.back() != stage.title) stages.push_back(stage.title);
  };
  const QuantizeRun run = run_quantize(request);
  EXPECT_EQ(stages, (std::vector<std::string>{"calibrating for the sensitivity", "sensitivity", "calibrating",
                                              "evaluate float", "evaluate quantized"}));
  const QuantizeOutcome& outcome = run.outcome;
  EXPECT_EQ(outcome.float_accuracy->total, 64);
  EXPECT_LT(outcome.bytes, outcome.float_bytes);
  EXPECT_FALSE(outcome.comparison.empty());
  ASSERT_TRUE(outcome.sensitivity.has_value());
  EXPECT_EQ(quant::tensors_of(run.recipe.recipe)->skip_values, outcome.sensitivity->worst(1));
  EXPECT_TRUE(std::any_of(outcome.reasons.begin(), outcome.reasons.end(), [](const std::string& line) {
    return line.find("the recipe skips it") != std::string::npos;
  }));
  EXPECT_EQ(ModeRecipe::from_json(run.plan->metadata.at("recipe")).recipe, run.recipe.recipe);
}

TEST(RunQuantize, FloatFiguresAreThoseBeforeTraining) {
  Case trained, untouched;
  QuantizeRequest request = trained.request("qat");
  request.compare = true;
  const QuantizeRun qat = run_quantize(request);
  EXPECT_FALSE(test::weights(*trained.model).equal(test::weights(*untouched.model)));
  const QuantizeRun still = run_quantize(untouched.request("static"));
  EXPECT_EQ(qat.outcome.float_accuracy->correct, still.outcome.float_accuracy->correct);
  // Compared with the weights as they were, the trained ones are far away.
  EXPECT_LT(qat.outcome.comparison.back().error.sqnr_db, 15.0);
}

TEST(RunQuantize, SensitivityAloneMakesNoEngine) {
  Case setup;
  QuantizeRequest request = setup.request("static");
  request.sensitivity = true;
  request.make_engine = false;
  const QuantizeRun run = run_quantize(request);
  EXPECT_FALSE(run.plan.has_value());
  EXPECT_FALSE(run.outcome.sensitivity->layers.empty());
  EXPECT_EQ(run.recipe.recipe, request.recipe.recipe);
}

TEST(RunQuantize, SaysWhichImagesAreMissing) {
  Case setup;
  QuantizeRequest request = setup.request("static");
  request.test.reset();
  EXPECT_FALSE(run_quantize(request).outcome.accuracy.has_value());
  request.compare = true;
  EXPECT_ERROR(run_quantize(request), "test samples for the comparison");
  request.keep_worst = 1;
  EXPECT_ERROR(run_quantize(request), "samples for the sensitivity");
}

}  // namespace
}  // namespace ulp::app
