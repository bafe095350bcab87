// One way to quantize: the results of each mode's own functions, from recipes of every type and their JSON.
#include "ulp/quant/quantize_model.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "residual_net.h"
#include "ulp/graph/capture/capture.h"

namespace ulp::quant {
namespace {

using graph::GraphModule;
using test::data;
using test::make_net;
using test::Net;

void feed(GraphModule& prepared) {
  prepared.forward(data(2, 8));
}

struct CapturedNet {
  Net net = make_net();
  std::shared_ptr<GraphModule> captured = capture(net, {data(1, 4)});
};

at::Tensor result(const std::shared_ptr<GraphModule>& model) {
  const at::NoGradGuard no_grad;
  return model->forward(data(9, 8));
}

TEST(QuantizeModel, EveryModeIsItsOwnFunctions) {
  CapturedNet c;
  const auto prepared = prepare(c.captured, Recipe::x86_int8());
  {
    const at::NoGradGuard no_grad;
    feed(*prepared);
  }
  const at::Tensor by_hand = result(convert(prepared));
  graph::PassReport report;
  EXPECT_TRUE(result(quantize(c.captured, Recipe::x86_int8(), feed, &report)).equal(by_hand));
  EXPECT_FALSE(report.changes.empty());
  EXPECT_TRUE(result(quantize(c.captured, AnyRecipe(Recipe::x86_int8()), feed)).equal(by_hand));

  const DynamicRecipe dynamic{.per_tensor = true};
  const at::Tensor dynamic_result = result(quantize_dynamic(c.captured, dynamic));
  EXPECT_TRUE(result(quantize(c.captured, dynamic)).equal(dynamic_result));
  EXPECT_TRUE(result(quantize(c.captured, AnyRecipe(dynamic))).equal(dynamic_result));

  const WeightOnlyRecipe weights{.bits = 4, .group = 16};
  EXPECT_TRUE(result(quantize(c.captured, weights)).equal(result(quantize_weights(c.captured, weights))));
}

TEST(QuantizeModel, TrainsInTheFunctionItIsGiven) {
  CapturedNet c;
  const QatRecipe recipe{.options = {.learned = LearnedParameters::scale}};
  int steps = 0;
  const auto train = [&](QatModule& model) {
    EXPECT_TRUE(model.is_training());
    for (; steps < 2; ++steps) {
      recipe.schedule(2).apply(model, steps);
      model.forward(data(2, 8));
    }
  };
  EXPECT_EQ(result(quantize(c.captured, recipe, train)).size(0), 8);
  EXPECT_EQ(steps, 2);
  const auto any = quantize(c.captured, AnyRecipe(recipe), [](GraphModule& model) {
    EXPECT_NE(dynamic_cast<QatModule*>(&model), nullptr);
    feed(model);
  });
  EXPECT_FALSE(any->is_training());
}

TEST(QuantizeModel, SaysThatDataIsMissing) {
  CapturedNet c;
  EXPECT_ERROR(quantize(c.captured, AnyRecipe(Recipe::x86_int8())), "runs calibration data, got none");
  EXPECT_ERROR(quantize(c.captured, AnyRecipe(QatRecipe{})), "that trains, got none");
}

TEST(AnyRecipe, TheTypeInJsonChoosesTheKind) {
  QatRecipe qat{.options = {.folding = BatchNormFolding::exact, .learned = LearnedParameters::scale}};
  qat.tensors.overrides.push_back(
      {.op = {}, .module = "fc", .value = {}, .activation = {}, .weight = qat.tensors.weight});
  qat.fake_quantize_after = 0.1;
  for (const AnyRecipe& recipe :
       {AnyRecipe(Recipe::tflite_int8()), AnyRecipe(DynamicRecipe{.per_tensor = true, .ops = {"lstm"}}),
        AnyRecipe(WeightOnlyRecipe{.bits = 4, .group = 8, .affine = true, .embeddings = false}),
        AnyRecipe(qat)}) {
    EXPECT_EQ(any_recipe_from_json(to_json(recipe)), recipe) << to_json(recipe);
    EXPECT_NE(to_json(recipe).find(type_of(recipe)), std::string::npos);
    validate(recipe);
  }
  EXPECT_EQ(any_recipe_from_json(R"({"type": "ulp.quant.WeightOnlyRecipe", "version": 1})"),
            AnyRecipe(WeightOnlyRecipe::four_bits()));
}

TEST(AnyRecipe, RefusesOtherJsonByTheField) {
  const auto error = [](const std::string& text) {
    return ulp::test::error_of([&] { any_recipe_from_json(text); });
  };
  EXPECT_SAYS(error("{"), "ulp.quant.Recipe, ulp.quant.DynamicRecipe, ulp.quant.WeightOnlyRecipe or");
  EXPECT_SAYS(error(R"({"type": "other"})"), "got 'other'");
  EXPECT_SAYS(error(R"({"type": "ulp.quant.DynamicRecipe", "version": 2})"), "version 1 to 1, got 2");
  EXPECT_SAYS(error(R"({"type": "ulp.quant.DynamicRecipe", "version": 1, "per_row": true})"), "'per_row'");
  EXPECT_SAYS(error(R"({"type": "ulp.quant.DynamicRecipe", "version": 1, "ops": ["conv2d"]})"),
              "expected ops of linear, lstm or gru, got 'conv2d'");
  EXPECT_SAYS(error(R"({"type": "ulp.quant.WeightOnlyRecipe", "version": 1, "bits": 5})"),
              "bits 8, 4, 3 or 2, got 5");
  EXPECT_SAYS(error(R"({"type": "ulp.quant.QatRecipe", "version": 1, "learned": "all"})"),
              "expected none, scale or scale_and_zero_point in 'learned'");
  EXPECT_SAYS(error(R"({"type": "ulp.quant.QatRecipe", "version": 1, "freeze_observers_after": 2})"),
              "expected a number in [0, 1] in 'freeze_observers_after', got 2");
  EXPECT_SAYS(error(R"({"type": "ulp.quant.QatRecipe", "version": 1,
                        "tensors": {"weight": {"scheme": {"bit": 4}}}})"),
              "'tensors.weight.scheme.bit'");
}

}  // namespace
}  // namespace ulp::quant
