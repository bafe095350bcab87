// ulp quantize with the profile binary: training on signs, the engine of it, and what the report says.
#include <gtest/gtest.h>

#include <algorithm>

#include "error_of.h"
#include "train/support.h"
#include "ulp/app/quantize/quantize_run.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"

namespace ulp::app {
namespace {

using test::bars;
using test::small_model;

bool has_line(const std::vector<std::string>& lines, const std::string& text) {
  return std::ranges::any_of(lines,
                             [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

struct BinaryCase {
  io::ImageDataset data = bars();
  std::shared_ptr<models::ImageModel> model = small_model("resnet20");
  std::shared_ptr<graph::GraphModule> captured = capture(*model, {torch::zeros({2, 1, 8, 8})});
  ModeRecipe recipe =
      recipe_for(mode_of(quant::Recipe::binary()), ModeRecipe{.recipe = quant::Recipe::binary()});

  BinaryCase() {
    recipe.training.options.batch = 16;
    recipe.training.options.max_steps = 6;
    recipe.training.options.learning_rate = 0.1;
  }
};

int64_t binary_steps(const runtime::Plan& plan) {
  return std::ranges::count_if(plan.steps, [](const runtime::Step& step) {
    return step.op == runtime::Op::binary_conv || step.op == runtime::Op::binary_linear;
  });
}

TEST(QuantizeBinary, TheProfileIsForTraining) {
  const BinaryCase setup;
  EXPECT_STREQ(mode_of(quant::Recipe::binary()).name, "qat");
  const auto& recipe = std::get<quant::QatRecipe>(setup.recipe.recipe);
  EXPECT_EQ(recipe.tensors, quant::Recipe::binary());
  EXPECT_EQ(recipe.freeze_batch_norm_after, 1.0);
  EXPECT_EQ(ModeRecipe::from_json(setup.recipe.to_json()).recipe, setup.recipe.recipe);
}

TEST(QuantizeBinary, TheReportNamesBinaryLayersAndTheirBytes) {
  BinaryCase setup;
  QuantizeRequest request;
  request.model = "resnet20";
  request.captured = setup.captured;
  request.mode = &find_quantize_mode("qat");
  request.recipe = setup.recipe;
  request.data = request.test = setup.data;
  request.compare = true;
  const QuantizeRun run = run_quantize(request);
  EXPECT_EQ(binary_steps(*run.plan), 18);
  const QuantizeOutcome& outcome = run.outcome;
  EXPECT_TRUE(has_line(outcome.quantized, "layer1.0.conv1 made binary"));
  EXPECT_TRUE(has_line(outcome.quantized, "layer1.0.conv1 gives signs by thresholds of its sums"));
  EXPECT_TRUE(has_line(outcome.quantized, "layer1.0.conv2 runs on signs"));
  EXPECT_TRUE(has_line(outcome.reasons, "conv1 not made binary: it is the first layer"));
  EXPECT_TRUE(has_line(outcome.reasons, "fc not made binary: it is the last layer"));
  EXPECT_LT(outcome.bytes * 12, outcome.float_bytes);  // shortcuts, first and last layer are float
  EXPECT_FALSE(outcome.comparison.empty());
  EXPECT_TRUE(outcome.accuracy.has_value());
}

TEST(QuantizeBinary, TheEngineAnswersAsTheConvertedGraph) {
  BinaryCase setup;
  const QuantizedModel made = quantize_qat(setup.captured, std::get<quant::QatRecipe>(setup.recipe.recipe),
                                           setup.data, setup.recipe.training);
  const torch::NoGradGuard no_grad;
  runtime::Engine engine(lower(*made.graph));
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({32, 1, 8, 8});
  const at::Tensor expected = made.graph->forward(x), got = run_engine(engine, x);
  EXPECT_TRUE(got.argmax(1).equal(expected.argmax(1)));
  // Sums of shortcuts are float: one that is all but 0 may have another sign.
  EXPECT_LE((got - expected).abs().max().item<float>(), 0.02 * expected.abs().max().item<float>());
}

TEST(QuantizeBinary, LatentWeightsStayInTheirRangeAlsoWhenALessonTrainsThem) {
  for (const std::vector<std::string>& loss : {std::vector<std::string>{}, {"kd:T=4,alpha=0.5"}}) {
    BinaryCase setup;
    setup.recipe.training.loss = loss;
    const auto named = setup.captured->named_parameters();
    at::Tensor latent = named["layer1.0.conv1.weight"], first = named["conv1.weight"];
    {
      const torch::NoGradGuard no_grad;
      latent.mul_(20);
      first.mul_(20);
    }
    ASSERT_GT(latent.abs().max().item<float>(), 1.0F);
    quantize_qat(setup.captured, std::get<quant::QatRecipe>(setup.recipe.recipe), setup.data,
                 setup.recipe.training);
    EXPECT_EQ(latent.abs().max().item<float>(), 1.0F) << loss.size();
    EXPECT_GT(first.abs().max().item<float>(), 1.0F);
  }
}

TEST(QuantizeBinary, ALayerThatTheEngineHasNoBitsForIsNamed) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3)),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1).groups(2)),
                              torch::nn::Flatten(), torch::nn::Linear(8 * 36, 4));
  BinaryCase setup;
  QuantizeRequest request;
  request.model = "grouped";
  request.captured = capture(model, {torch::zeros({2, 1, 8, 8})});
  request.mode = &find_quantize_mode("qat");
  request.recipe = setup.recipe;
  request.data = setup.data;
  const QuantizeRun run = run_quantize(request);
  EXPECT_EQ(binary_steps(*run.plan), 0);
  EXPECT_TRUE(has_line(run.outcome.quantized, "1 made binary"));
  EXPECT_TRUE(has_line(run.outcome.reasons, "1 runs as a float layer of signs: it has groups"));
}

TEST(QuantizeBinary, CalibrationIsRefused) {
  BinaryCase setup;
  EXPECT_ERROR(quantize(setup.captured, quant::Recipe::binary(), setup.data, 16), "prepare_qat");
}

}  // namespace
}  // namespace ulp::app
