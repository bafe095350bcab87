// Deep mutual learning: the losses of the paper, of peers of any sizes.
#include "ulp/distill/mutual.h"

#include "networks.h"

namespace ulp::distill::tests {
namespace {

/// The peers' logits in eval mode.
std::vector<at::Tensor> logits_of(const std::vector<Captured>& peers, const Batch& batch) {
  std::vector<at::Tensor> logits;
  for (const Captured& peer : peers) {
    peer->eval();
    logits.push_back(peer->forward(batch.inputs));
  }
  return logits;
}

TEST(MutualDistillation, TheLossIsEachPeersOwnAndTheMeanOverTheOthers) {
  for (const double t : {1.0, 3.0}) {
    const std::vector<Captured> peers = {conv_net(4, 1), conv_net(8, 2), conv_net(2, 3)};
    MutualDistillation learner(peers, {.weight = 0.7, .temperature = t});
    learner.eval();
    const Batch batch = image_batch(6, 4);
    const at::Tensor output = learner.forward(batch);
    const at::Tensor loss = learner.loss(batch);
    const auto logits = logits_of(peers, batch);
    EXPECT_TRUE(same(output, logits[0]));
    at::Tensor expected = torch::zeros({});
    std::vector<double> parts;
    for (size_t i = 0; i < 3; ++i) {
      const at::Tensor own = torch::nn::functional::cross_entropy(logits[i], batch.targets);
      at::Tensor others = torch::zeros({});
      for (size_t j = 0; j < 3; ++j) {
        if (j == i) continue;
        const at::Tensor p = (logits[j] / t).softmax(1).detach();
        others = others + (p * (p.log() - (logits[i] / t).log_softmax(1))).sum(1).mean() * t * t / 2;
      }
      expected = expected + own + 0.7 * others;
      parts.push_back(own.item<double>());
      parts.push_back(others.item<double>());
    }
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-5);
    const auto values = learner.values();
    ASSERT_EQ(values.size(), 6U);
    EXPECT_EQ(values[0].name, "peer 1, labels");
    EXPECT_EQ(values[5].name, "peer 3, others");
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(values[i].value, parts[i], 1e-5) << i;
      EXPECT_EQ(values[i].weight, i % 2 == 0 ? 1 : 0.7);
    }
    // No peer moves to please another one: the gradient is that of its own part.
    loss.backward();
    std::vector<at::Tensor> gradients;
    for (const Captured& peer : peers) {
      gradients.push_back(peer->named_parameters()["head.weight"].grad().clone());
      peer->zero_grad();
    }
    expected.backward();
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(
          torch::allclose(gradients[i], peers[i]->named_parameters()["head.weight"].grad(), 1e-4, 1e-6));
  }
}

TEST(MutualDistillation, PeersTrainTogetherWithoutLabels) {
  const std::vector<Captured> peers = {conv_net(4, 1), conv_net(8, 2)};
  MutualDistillation learner(peers);
  learner.eval();  // the same function at each step
  EXPECT_EQ(learner.parameters().size(), peers[0]->parameters().size() + peers[1]->parameters().size());
  Batch batch = image_batch(6, 4);
  batch.targets.fill_(kUnlabelled);
  torch::optim::SGD optimizer(learner.parameters(), 0.2);
  double first = 0, last = 0;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    learner.forward(batch);
    const at::Tensor loss = learner.loss(batch);
    loss.backward();
    optimizer.step();
    EXPECT_EQ(learner.values()[0].value, 0);
    (step == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_LT(last, first);
}

TEST(MutualDistillation, WhatCannotLearnTogetherIsRefused) {
  const Captured a = conv_net(4, 1), b = conv_net(4, 2), five = conv_net(4, 3, 5);
  const auto error = [](std::vector<Captured> peers, MutualOptions options = {}) {
    return test::error_of([&] { MutualDistillation made(std::move(peers), options); });
  };
  EXPECT_SAYS(error({a}), "expected at least two peers, got 1");
  EXPECT_SAYS(error({a, a}), "expected different peers, got one twice");
  EXPECT_SAYS(error({a, nullptr}), "expected peers, got null");
  EXPECT_SAYS(error({a, b}, {.weight = 0}), "expected a weight and a temperature > 0, got 0 and 1");
  EXPECT_SAYS(error({a, b}, {.temperature = -1}), "got 1 and -1");
  MutualDistillation other({a, five});
  EXPECT_ERROR(other.forward(image_batch(2, 1)),
               "expected peers with logits of one shape, got [2, 4] and [2, 5]");
  MutualDistillation learner({a, b});
  EXPECT_ERROR(learner.loss(image_batch(2, 1)), "expected forward() before loss(), got none");
}

}  // namespace
}  // namespace ulp::distill::tests
