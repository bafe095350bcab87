// Self distillation: classifiers behind inner layers learn from the labels and from the last layer.
#include "networks.h"
#include "ulp/amp/autocast/precision.h"
#include "ulp/distill/early_exits.h"

namespace ulp::distill::tests {
namespace {

SelfDistillation make(const Captured& network, ExitOptions options) {
  torch::manual_seed(8);
  return SelfDistillation(network, std::move(options), image_batch(4, 3));
}

TEST(SelfDistillation, TheLossIsTheSumOverTheExits) {
  const Captured network = conv_net(4, 1);
  SelfDistillation learner = make(network, {.places = {"layer1", "layer2"}, .features = "layer2"});
  learner.eval();
  network->eval();
  const Batch batch = image_batch(6, 4);
  EXPECT_TRUE(same(learner.forward(batch), network->forward(batch.inputs)));
  const at::Tensor loss = learner.loss(batch);
  const std::vector<at::Tensor> logits = learner.all_logits(batch);
  ASSERT_EQ(logits.size(), 3U);
  EXPECT_TRUE(same(logits[2], network->forward(batch.inputs)));
  const std::vector<std::string> places = {"layer1", "layer2"};
  const auto taps = TappedModel(*network, places).run(batch.inputs).taps;
  const auto entropy = [&](const at::Tensor& z) {
    return torch::nn::functional::cross_entropy(z, batch.targets);
  };
  const auto state = learner.named_parameters();
  const at::Tensor target = taps[1].mean({2, 3});
  at::Tensor expected = entropy(logits[2]);
  for (size_t i = 0; i < 2; ++i) {
    const std::string number = std::to_string(i);
    const at::Tensor x = taps[i].mean({2, 3});
    const at::Tensor own =
        at::linear(x, state["exit_" + number + ".weight"], state["exit_" + number + ".bias"]);
    EXPECT_TRUE(torch::allclose(own, logits[i]));
    const at::Tensor p = (logits[2] / 3).softmax(1);
    const at::Tensor divergence = (p * (p.log() - (own / 3).log_softmax(1))).sum(1).mean() * 9;
    const at::Tensor features =
        at::linear(x, state["features_" + number + ".weight"], state["features_" + number + ".bias"]);
    expected = expected + 0.7 * entropy(own) + 0.3 * divergence + 0.03 * at::mse_loss(features, target);
  }
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-5);
  const auto values = learner.values();
  ASSERT_EQ(values.size(), 7U);
  EXPECT_EQ(values[0].name, "labels");
  EXPECT_EQ(values[1].name, "layer1, labels");
  EXPECT_EQ(values[2].name, "layer1, last layer");
  EXPECT_EQ(values[3].name, "layer1, features");
}

/// The last layer teaches and does not learn from its exits.
TEST(SelfDistillation, TheHeadHasTheGradientOfTheLabelsAlone) {
  const Captured network = conv_net(4, 1);
  SelfDistillation learner = make(network, {.places = {"layer1"}});
  learner.eval();
  network->eval();
  const Batch batch = image_batch(6, 4);
  learner.forward(batch);
  learner.loss(batch).backward();
  const at::Tensor head = network->named_parameters()["head.weight"].grad().clone();
  const at::Tensor below = network->named_parameters()["layer1.conv.weight"].grad().clone();
  network->zero_grad();
  torch::nn::functional::cross_entropy(network->forward(batch.inputs), batch.targets).backward();
  EXPECT_TRUE(torch::allclose(head, network->named_parameters()["head.weight"].grad(), 1e-5, 1e-7));
  EXPECT_FALSE(torch::allclose(below, network->named_parameters()["layer1.conv.weight"].grad(), 1e-3, 1e-5));
}

TEST(SelfDistillation, ExitsStayInFp32BesideANetworkOf16Bits) {
  SelfDistillation learner = make(conv_net(4, 1), {.places = {"layer1"}, .features = "layer2"});
  const amp::Precision& precision = amp::find_precision("O2:bf16");
  amp::apply_precision(learner, precision);
  Batch batch = image_batch(6, 4);
  batch.inputs[0] = amp::cast_input(precision, batch.inputs[0]);
  EXPECT_EQ(learner.forward(batch).scalar_type(), at::kBFloat16);
  learner.loss(batch).backward();
  EXPECT_EQ(learner.named_parameters()["exit_0.weight"].grad().scalar_type(), at::kFloat);
  EXPECT_EQ(learner.named_parameters()["features_0.weight"].grad().scalar_type(), at::kFloat);
}

TEST(SelfDistillation, ExitsTrain) {
  SelfDistillation learner = make(conv_net(4, 1), {.places = {"layer1", "layer2"}});
  EXPECT_FALSE(learner.named_parameters().contains("features_0.weight"));
  const Batch batch = image_batch(16, 4);
  torch::optim::SGD optimizer(learner.parameters(), 0.1);
  double first = 0, last = 0;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    learner.forward(batch);
    learner.loss(batch).backward();
    optimizer.step();
    (step == 0 ? first : last) = learner.values()[1].value;
  }
  EXPECT_LT(last, first);
}

TEST(SelfDistillation, WhatHoldsNoFeaturesIsRefused) {
  const Captured network = conv_net(4, 1);
  const auto error = [&](ExitOptions options) {
    return test::error_of([&] { make(network, std::move(options)); });
  };
  EXPECT_SAYS(error({}), "expected places of exits, got none");
  EXPECT_SAYS(error({.places = {"layer7"}}), "got 'layer7'");
  EXPECT_SAYS(error({.places = {"layer1"}, .divergence = 2}), "expected a divergence in [0, 1]");
  EXPECT_SAYS(error({.places = {"layer1"}, .temperature = 0}), "a temperature > 0");
  EXPECT_ERROR(SelfDistillation(nullptr, {.places = {"layer1"}}, image_batch(4, 3)),
               "expected a network, got null");
  torch::nn::Module nothing;
  const Captured flat = graph::capture(nothing,
                                       [](const std::vector<at::Tensor>& in) {
                                         return c10::IValue(in[0].sum({1, 2, 3}).unsqueeze(1));
                                       },
                                       {torch::randn({2, 1, 8, 8})});
  EXPECT_ERROR(SelfDistillation(flat, {.places = {"sum"}}, image_batch(4, 3)),
               "expected features of 2 to 4 dimensions, got [4]");
  SelfDistillation learner = make(network, {.places = {"layer1"}});
  EXPECT_ERROR(learner.loss(image_batch(2, 1)), "expected forward() before loss(), got none");
}

}  // namespace
}  // namespace ulp::distill::tests
