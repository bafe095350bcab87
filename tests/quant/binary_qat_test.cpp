#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "error_of.h"
#include "residual_net.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/binary/binary_weights.h"
#include "ulp/quant/binary/layers.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/quantize.h"

namespace ulp::quant {
namespace {

using test::data;
using test::make_net;
using test::Net;
using ulp::test::error_of;

int calls_of(const graph::GraphModule& module, const char* op) {
  return static_cast<int>(
      std::ranges::count_if(module.graph().nodes(), [&](const auto& node) { return node->is(op); }));
}

double binary_loss(QatModule& module, const at::Tensor& x) {
  return torch::cross_entropy_loss(module.forward(x), (x.mean({1, 2, 3}) > 0.5).to(at::kLong)).item<double>();
}

std::shared_ptr<graph::GraphModule> captured_net() {
  Net model = make_net();
  return capture(model, {data(1, 4)});
}

void train_binary(QatModule& module, int steps) {
  torch::optim::Adam optimizer(module.parameters(), torch::optim::AdamOptions(0.01));
  module.train();
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    const at::Tensor x = data(static_cast<uint64_t>(100 + i), 16);
    torch::cross_entropy_loss(module.forward(x), (x.mean({1, 2, 3}) > 0.5).to(at::kLong)).backward();
    optimizer.step();
    clip_latent_weights(module);
  }
}

TEST(BinaryQat, FirstLastAndShortcutsStayFloat) {
  Net model = make_net();
  const auto qat = prepare_qat(capture(model, {data(1, 4)}), Recipe::binary());
  const std::vector<std::string> expected = {"block1.conv1.weight", "block1.conv2.weight",
                                             "block2.conv1.weight", "block2.conv2.weight"};
  EXPECT_EQ(latent_weights(*qat), expected);
  const std::vector<std::string>& notes = qat->report().near_misses;
  const auto noted = [&](const char* text) {
    return std::ranges::any_of(notes,
                               [&](const std::string& line) { return line.find(text) != std::string::npos; });
  };
  EXPECT_TRUE(noted("stem not made binary: it is the first layer"));
  EXPECT_TRUE(noted("fc not made binary: it is the last layer"));
  EXPECT_TRUE(noted("block2.down not made binary: its window is one pixel"));
  const auto all = prepare_qat(captured_net(), Recipe::binary(),
                               {.binary = {.first = true, .last = true, .shortcuts = true}});
  EXPECT_EQ(latent_weights(*all).size(), 7U);
  Recipe recipe = Recipe::binary();
  recipe.skip_modules = {"block1"};
  EXPECT_EQ(latent_weights(*prepare_qat(captured_net(), recipe)).size(), 2U);
  recipe.skip_modules = {"block*"};
  EXPECT_NE(error_of([&] { prepare_qat(captured_net(), recipe); }).find("at least one layer"),
            std::string::npos);
  EXPECT_NE(error_of([&] { prepare(captured_net(), Recipe::binary()); }).find("prepare_qat"),
            std::string::npos);
}

TEST(BinaryQat, ItsLayersComputeAsThoseOfLayers) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3)),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 6, 3).padding(1)),
                              torch::nn::Flatten(), torch::nn::Linear(6 * 14 * 14, 12),
                              torch::nn::Linear(12, 2));
  const at::Tensor x = data(1, 4);
  for (const bool k : {false, true}) {
    const BinaryLayerOptions how{.gradient = SignGradient::approx, .activation_scale = k};
    torch::nn::Sequential twin(
        torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3)),
        BinaryConv2d(torch::nn::Conv2dOptions(8, 6, 3).padding(1), how), torch::nn::Flatten(),
        BinaryLinear(torch::nn::LinearOptions(6 * 14 * 14, 12), how), torch::nn::Linear(12, 2));
    {
      const at::NoGradGuard no_grad;
      const auto from = model->named_parameters();
      for (auto& parameter : twin->named_parameters()) parameter.value().copy_(from[parameter.key()]);
    }
    const auto qat = prepare_qat(capture(model, {x}), Recipe::binary(), {.binary = {.layers = how}});
    const at::Tensor y = qat->forward(x), z = twin->forward(x);
    EXPECT_TRUE(y.equal(z)) << (y - z).abs().max();
    model->zero_grad();
    y.square().sum().backward();
    z.square().sum().backward();
    const auto got = model->named_parameters();
    for (const auto& parameter : twin->named_parameters()) {
      EXPECT_TRUE(at::allclose(got[parameter.key()].grad(), parameter.value().grad(), 1e-4, 1e-4))
          << parameter.key();
    }
  }
}

TEST(BinaryQat, EveryFormTrainsAndConvertsBitForBit) {
  std::vector<BinaryLayerOptions> forms;
  for (const auto scale : {BinaryScale::none, BinaryScale::mean, BinaryScale::output, BinaryScale::full,
                           BinaryScale::spatial, BinaryScale::separable})
    forms.push_back({.scale = scale});
  forms.push_back({.gradient = SignGradient::approx, .activation_scale = true});
  forms.push_back({.padding = BinaryPadding::zero});
  forms.push_back({.ternary = true});
  for (const BinaryLayerOptions& form : forms) {
    Net model = make_net();
    const auto qat =
        prepare_qat(capture(model, {data(1, 4)}), Recipe::binary(), {.binary = {.layers = form}});
    const std::string what = std::string(enum_name(form.scale)) + (form.ternary ? " ternary" : "");
    const at::Tensor x = data(500, 64);
    const double before = binary_loss(*qat, x);
    train_binary(*qat, 8);
    EXPECT_LT(binary_loss(*qat, x), before) << what;
    qat->eval();
    const at::NoGradGuard no_grad;
    const at::Tensor expected = qat->forward(x);
    graph::PassReport report;
    const auto converted = convert_qat(qat, &report);
    EXPECT_TRUE(converted->forward(x).equal(expected)) << what;
    EXPECT_EQ(calls_of(*converted, "ulp::binarize"), 4) << what;
    EXPECT_EQ(calls_of(*converted, "ulp::unpack_signs"), form.ternary ? 0 : 4) << what;
    EXPECT_FALSE(report.changes.empty());
    for (const auto& parameter : converted->named_parameters())
      EXPECT_EQ(parameter.key().find("block1.conv1.weight"), std::string::npos) << what;
  }
}

TEST(BinaryQat, SignsAreTakenInFrontOfAReluWhichHasNone) {
  torch::manual_seed(2);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3)), torch::nn::ReLU(),
                              torch::nn::MaxPool2d(2), torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3)),
                              torch::nn::ReLU6(), torch::nn::Flatten(), torch::nn::Linear(8 * 25, 6),
                              torch::nn::ReLU(), torch::nn::Linear(6, 2));
  const at::Tensor x = data(1, 4);
  const auto qat = prepare_qat(capture(model, {x}), Recipe::binary());
  qat->eval();
  const at::NoGradGuard no_grad;
  qat->set_fake_quant_enabled(false);
  EXPECT_TRUE(at::allclose(qat->forward(x), model->forward(x), 1e-5, 1e-5));
  const auto converted = convert_qat(qat);
  EXPECT_EQ(calls_of(*converted, "ulp::binarize"), 2);
  EXPECT_EQ(calls_of(*converted, "aten::relu"), 1);  // in front of the last layer, which is float
  EXPECT_EQ(calls_of(*converted, "aten::hardtanh") + calls_of(*converted, "aten::relu6"), 0);
}

TEST(BinaryQat, TheFloatStageIsTheModelAndHasItsGradients) {
  torch::manual_seed(3);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3)), torch::nn::ReLU(),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 6, 3).padding(1)),
                              torch::nn::Flatten(), torch::nn::Linear(6 * 14 * 14, 12),
                              torch::nn::Linear(12, 2));
  const at::Tensor x = data(1, 4);
  const auto gradients = [&](torch::nn::Module& of, const at::Tensor& y) {
    of.zero_grad();
    y.square().sum().backward();
    std::vector<at::Tensor> found;
    for (const auto& parameter : model->parameters()) found.push_back(parameter.grad().clone());
    return found;
  };
  const at::Tensor y = model->forward(x);
  const std::vector<at::Tensor> expected = gradients(*model, y);
  for (const BinaryLayerOptions& form :
       {BinaryLayerOptions{}, BinaryLayerOptions{.scale = BinaryScale::none},
        BinaryLayerOptions{.scale = BinaryScale::output}, BinaryLayerOptions{.activation_scale = true},
        BinaryLayerOptions{.padding = BinaryPadding::zero}, BinaryLayerOptions{.ternary = true}}) {
    const auto qat = prepare_qat(capture(model, {x}), Recipe::binary(), {.binary = {.layers = form}});
    qat->set_fake_quant_enabled(false);
    const at::Tensor z = qat->forward(x);
    EXPECT_TRUE(at::allclose(z, y, 1e-4, 1e-4)) << enum_name(form.scale);
    const std::vector<at::Tensor> got = gradients(*qat, z);
    // A learned scale is a factor by itself: the weight is normed, and has the gradient of a normed one.
    if (is_learned(form.scale)) continue;
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-3, 1e-3)) << enum_name(form.scale) << ' ' << i;
  }
}

TEST(BinaryQat, ActivationsComeFirstThenWeights) {
  Net model = make_net();
  const auto qat = prepare_qat(capture(model, {data(1, 4)}), Recipe::binary());
  const at::Tensor x = data(2, 4);
  qat->eval();
  const at::NoGradGuard no_grad;
  const QatSchedule schedule{.fake_quantize_from = 1, .binary_weights_from = 2};
  schedule.apply(*qat, 0);
  EXPECT_TRUE(at::allclose(qat->forward(x), model->forward(x), 1e-4, 1e-4));  // float in both
  schedule.apply(*qat, 1);
  EXPECT_TRUE(qat->fake_quant_enabled() && !qat->binary_weights());
  const at::Tensor half = qat->forward(x);
  schedule.apply(*qat, 2);
  EXPECT_TRUE(qat->binary_weights());
  EXPECT_FALSE(qat->forward(x).equal(half));
  QatRecipe recipe{.tensors = Recipe::binary()};
  recipe.options.binary.weights_after = 0.5;
  EXPECT_EQ(recipe.schedule(100).binary_weights_from, 50);
  EXPECT_EQ(QatRecipe{}.schedule(100).binary_weights_from, 0);
}

TEST(BinaryQat, TheRestMayHaveIntegers) {
  for (const BinaryLayerOptions& form :
       {BinaryLayerOptions{}, BinaryLayerOptions{.scale = BinaryScale::none},
        BinaryLayerOptions{.activation_scale = true}, BinaryLayerOptions{.ternary = true}}) {
    Net model = make_net();
    Recipe recipe = Recipe::binary();
    recipe.ops = {"conv2d", "linear"};
    const auto qat = prepare_qat(capture(model, {data(1, 4)}), recipe, {.binary = {.layers = form}});
    train_binary(*qat, 3);
    qat->eval();
    const at::NoGradGuard no_grad;
    const at::Tensor x = data(3, 8);
    const auto converted = convert_qat(qat);
    EXPECT_EQ(calls_of(*converted, "ulp::binarize"), 4);
    EXPECT_EQ(calls_of(*converted, "ulp::unpack_signs"), form.ternary ? 0 : 4);
    EXPECT_GE(calls_of(*converted, "ulp::quantize"), 2);
    EXPECT_TRUE(at::allclose(converted->forward(x), qat->forward(x), 1e-3, 1e-3)) << enum_name(form.scale);
  }
}

TEST(BinaryQat, LayersKeepTheirNames) {
  const auto captured = captured_net();
  std::vector<std::string> names;
  for (const auto& node : captured->graph().nodes()) {
    if (node->is("aten::conv2d") || node->is("aten::linear")) names.push_back(node->name());
  }
  const auto qat =
      prepare_qat(captured, Recipe::binary(), {.binary = {.layers = {.activation_scale = true}}});
  const auto converted = convert_qat(qat);
  for (const graph::GraphModule* module : {static_cast<graph::GraphModule*>(qat.get()), converted.get()}) {
    int found = 0;
    for (const auto& node : module->graph().nodes()) {
      const bool last = node->is("aten::mul") || node->is("aten::conv2d") || node->is("aten::linear");
      found += last && std::ranges::find(names, node->name()) != names.end();
    }
    EXPECT_EQ(found, static_cast<int>(names.size()));
  }
}

TEST(BinaryQat, AnActivationScaleNeedsABoxFilter) {
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(2)),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).dilation(2)),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3)),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3)));
  const auto captured = capture(model, {data(1, 2)});
  const auto qat =
      prepare_qat(captured, Recipe::binary(), {.binary = {.layers = {.activation_scale = true}}});
  EXPECT_EQ(latent_weights(*qat), std::vector<std::string>{"3.weight"});
  EXPECT_EQ(latent_weights(*prepare_qat(captured, Recipe::binary())).size(), 3U);
}

TEST(BinaryQat, AnOverrideKeepsALayerFromBecomingBinary) {
  Recipe recipe = Recipe::binary();
  recipe.overrides.push_back({.op = {},
                              .module = "block2.conv1",
                              .value = {},
                              .activation = {},
                              .weight = Recipe::x86_int8().weight});
  const auto qat = prepare_qat(captured_net(), recipe);
  EXPECT_EQ(latent_weights(*qat).size(), 3U);
}

TEST(BinaryQat, RecipesAreReadAndWritten) {
  EXPECT_EQ(Recipe::from_json(Recipe::binary().to_json()), Recipe::binary());
  QatRecipe recipe{.tensors = Recipe::binary()};
  recipe.options.binary = {.layers = {.gradient = SignGradient::approx,
                                      .scale = BinaryScale::separable,
                                      .activation_scale = true,
                                      .padding = BinaryPadding::zero,
                                      .ternary = true},
                           .first = true,
                           .last = true,
                           .shortcuts = true,
                           .weights_after = 0.25};
  EXPECT_EQ(QatRecipe::from_json(recipe.to_json()), recipe) << recipe.to_json();
  recipe.tensors = Recipe::x86_int8();
  EXPECT_NE(error_of([&] { recipe.validate(); }).find("backend binary"), std::string::npos);
  const QatRecipe old =
      QatRecipe::from_json(R"({"type": "ulp.quant.QatRecipe", "version": 1, "learned": "scale"})");
  EXPECT_EQ(old.options.binary, BinaryOptions{});
  EXPECT_THROW(QatRecipe::from_json(
                   R"({"type": "ulp.quant.QatRecipe", "version": 2, "binary": {"weights_after": 2}})"),
               Error);
}

TEST(BinaryQat, SequencesAndRowsBecomeBinary) {
  torch::manual_seed(9);
  torch::nn::Sequential model(torch::nn::Conv1d(torch::nn::Conv1dOptions(3, 8, 3)),
                              torch::nn::Conv1d(torch::nn::Conv1dOptions(8, 8, 3).padding(1)),
                              torch::nn::Conv1d(torch::nn::Conv1dOptions(8, 4, 3)));
  const at::Tensor x = torch::randn({2, 3, 12});
  const auto qat =
      prepare_qat(capture(model, {x}), Recipe::binary(),
                  {.binary = {.layers = {.scale = BinaryScale::output, .activation_scale = true}}});
  qat->forward(x).sum().backward();
  EXPECT_GT(model->named_parameters()["1.weight"].grad().abs().sum().item<float>(), 0);
  qat->eval();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(convert_qat(qat)->forward(x).equal(qat->forward(x)));
}

}  // namespace
}  // namespace ulp::quant
