// Tapped models: the same outputs, further values, gradients into them, and what is cut away.
#include "ulp/distill/tap.h"

#include <sstream>

#include "networks.h"

namespace ulp::distill::tests {
namespace {

const std::vector<std::string> kPlaces = {"layer1", "layer2:input", "layer2", ""};

TEST(Tap, GivesTheModelsOwnBitsInBothModes) {
  const Captured model = conv_net(4, 1), other = conv_net(4, 1);
  const TappedModel tapped(*other, kPlaces);
  const at::Tensor x = image_batch(3, 2).inputs[0];
  for (const bool training : {true, false}) {
    model->train(training);
    tapped.module()->train(training);
    torch::manual_seed(9);
    const at::Tensor expected = model->forward(x);
    torch::manual_seed(9);
    const TappedModel::Values values = tapped.run({x});
    EXPECT_TRUE(same(values.output(), expected)) << training;
    EXPECT_TRUE(same(values.result.toTensor(), expected)) << training;
    ASSERT_EQ(values.taps.size(), 4U);
    EXPECT_EQ(values.taps[0].sizes(), (std::vector<int64_t>{3, 4, 8, 8}));
    EXPECT_TRUE(same(values.taps[0], values.taps[1]));
    EXPECT_EQ(values.taps[2].sizes(), (std::vector<int64_t>{3, 8, 4, 4}));
    EXPECT_TRUE(same(values.taps[3], expected)) << training;
  }
  // Buffers of batch norms went the same way, too.
  for (const auto& buffer : model->named_buffers())
    EXPECT_TRUE(same(other->named_buffers()[buffer.key()], buffer.value())) << buffer.key();
}

TEST(Tap, ValuesAreThoseOfTheModules) {
  torch::manual_seed(3);
  ConvNet model(4);
  model->eval();
  const Captured captured = capture(model, {torch::randn({3, 1, 8, 8})});
  const TappedModel tapped(*captured, kPlaces);
  const at::Tensor x = image_batch(5, 4).inputs[0];
  const auto taps = tapped.run({x}).taps;
  const at::Tensor one = model->layer1(x), two = model->layer2(one);
  EXPECT_TRUE(torch::allclose(taps[0], one, 1e-6, 1e-6));
  EXPECT_TRUE(torch::allclose(taps[2], two, 1e-6, 1e-6));
}

TEST(Tap, TensorsAreTheModelsOwnAndModesAreApart) {
  const Captured model = conv_net(4, 1);
  model->eval();
  const TappedModel tapped(*model, kPlaces);
  EXPECT_FALSE(tapped.module()->is_training());
  tapped.module()->train();
  EXPECT_FALSE(model->is_training());
  const auto own = model->named_parameters(), theirs = tapped.module()->named_parameters();
  ASSERT_EQ(own.size(), theirs.size());
  for (const auto& parameter : own) EXPECT_TRUE(theirs[parameter.key()].is_same(parameter.value()));
}

TEST(Tap, GradientsFlowThroughATappedValue) {
  const Captured model = conv_net(4, 1);
  const TappedModel tapped(*model, kPlaces);
  tapped.run({image_batch(3, 2).inputs[0]}).taps[0].square().sum().backward();
  for (const auto& parameter : model->named_parameters()) {
    const bool below = parameter.key().starts_with("layer1.");
    EXPECT_EQ(parameter.value().grad().defined(), below) << parameter.key();
    if (below && parameter.key() == "layer1.conv.weight") {
      EXPECT_GT(parameter.value().grad().abs().sum().item<double>(), 0);
    }
  }
}

TEST(Tap, TheModelIsNotChanged) {
  const Captured model = conv_net(4, 1);
  std::ostringstream before, after;
  before << model->graph();
  const TappedModel tapped(*model, kPlaces), cut(*model, kPlaces, Keep::taps);
  after << model->graph();
  EXPECT_EQ(before.str(), after.str());
}

/// Only what the taps need is left: nodes, parameters, and no result; updates of statistics go, too, in eval mode for good.
TEST(Tap, WhatTheTapsDoNotNeedIsCutAway) {
  const Captured model = conv_net(4, 1);
  model->eval();
  const std::vector<std::string> places = {"layer1"};
  const TappedModel cut(*model, places, Keep::taps);
  EXPECT_LT(cut.module()->graph().nodes().size(), model->graph().nodes().size() - 5);
  for (const auto& parameter : cut.module()->named_parameters())
    EXPECT_TRUE(parameter.key().starts_with("layer1.")) << parameter.key();
  for (const auto& buffer : cut.module()->named_buffers())
    EXPECT_TRUE(buffer.key().starts_with("layer1.")) << buffer.key();
  const at::Tensor x = image_batch(3, 2).inputs[0];
  const TappedModel::Values values = cut.run({x});
  EXPECT_TRUE(values.result.isNone());
  const at::Tensor expected = TappedModel(*model, places).run({x}).taps[0];
  EXPECT_TRUE(same(values.taps[0], expected));
  cut.module()->train();
  EXPECT_TRUE(same(cut.run({x}).taps[0], expected));
  EXPECT_ERROR(values.output(), "expected a model that returns a tensor, got None");
}

TEST(Tap, NoPlacesAreTheModelAlone) {
  const Captured model = conv_net(4, 1);
  model->eval();
  const at::Tensor x = image_batch(3, 2).inputs[0];
  const TappedModel::Values values = TappedModel(*model, {}).run({x});
  EXPECT_TRUE(values.taps.empty());
  EXPECT_TRUE(same(values.output(), model->forward(x)));
}

/// A batch of another size, and scores of an attention that is fused in the model.
TEST(Tap, ScoresOfAFusedAttentionTrain) {
  torch::manual_seed(5);
  Transformer model(Attention::causal);
  const Captured captured = capture(model, {tokens()});
  const std::vector<std::string> places = {"layers.0.attention:scores"};
  const TappedModel tapped(*captured, places);
  const at::Tensor scores = tapped.run({tokens(7)}).taps[0];
  EXPECT_EQ(scores.sizes(), (std::vector<int64_t>{7, 2, 5, 5}));
  scores.clamp_min(-100).sum().backward();
  EXPECT_GT(model->attentions[0]->query->weight.grad().abs().sum().item<double>(), 0);
  EXPECT_FALSE(model->attentions[0]->value->weight.grad().defined());
}

}  // namespace
}  // namespace ulp::distill::tests
