// What quantization-aware training is for: weights of 4 bits that cost accuracy when a trained model is
// rounded, and little when it has trained with them.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ulp/graph/capture/capture.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/quantize.h"

namespace ulp::quant {
namespace {

using graph::GraphModule;

struct Points {
  at::Tensor x, labels;
};

// Three spiral arms around the origin, with noise: f32[3 n, 2].
Points spirals(uint64_t seed, int64_t n) {
  torch::manual_seed(seed);
  std::vector<at::Tensor> x, labels;
  for (int64_t arm = 0; arm < 3; ++arm) {
    const at::Tensor radius = torch::linspace(0.1, 1, n);
    const at::Tensor angle = radius * 7 + 2.0944 * static_cast<double>(arm) + torch::randn({n}) * 0.05;
    x.push_back(at::stack({radius * angle.cos(), radius * angle.sin()}, 1));
    labels.push_back(torch::full({n}, arm, at::kLong));
  }
  return {at::cat(x), at::cat(labels)};
}

double accuracy(GraphModule& module, const Points& points) {
  const at::NoGradGuard no_grad;
  module.eval();
  return (module.forward(points.x).argmax(1) == points.labels).to(at::kFloat).mean().item<double>();
}

void train(GraphModule& module, const Points& points, int steps, double lr,
           const QatSchedule* schedule = {}) {
  torch::optim::Adam optimizer(module.parameters(), torch::optim::AdamOptions(lr));
  for (int i = 0; i < steps; ++i) {
    module.train();
    if (schedule) schedule->apply(dynamic_cast<QatModule&>(module), i);
    optimizer.zero_grad();
    torch::cross_entropy_loss(module.forward(points.x), points.labels).backward();
    optimizer.step();
  }
}

Recipe four_bit_weights() {
  Recipe recipe = Recipe::x86_int8();
  recipe.weight.scheme.bits = 4;
  recipe.weight.scheme.granularity = PerTensor{};
  return recipe;
}

TEST(QatAccuracy, FourBitWeightsTrainToWhatRoundingLoses) {
  torch::manual_seed(0);
  // Each draws its weights; the order of arguments would be the compiler's.
  const torch::nn::Linear last(16, 3), middle(16, 16), first(2, 16);
  torch::nn::Sequential model(first, torch::nn::ReLU(), middle, torch::nn::ReLU(), last);
  const Points training = spirals(1, 200), unseen = spirals(2, 300);
  const auto captured = capture(model, {training.x});
  train(*captured, training, 400, 0.01);
  const double exact = accuracy(*captured, unseen);

  const auto prepared = prepare(captured, four_bit_weights());
  {
    const at::NoGradGuard no_grad;
    prepared->forward(training.x);
  }
  const double rounded = accuracy(*convert(prepared), unseen);

  const QatSchedule schedule{.freeze_observers_at = 150};
  double trained[2];
  const auto weights = [&] {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& p : model->parameters()) copies.push_back(p.detach().clone());
    return copies;
  };
  const std::vector<at::Tensor> start = weights();
  for (const auto learned : {LearnedParameters::none, LearnedParameters::scale}) {
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < start.size(); ++i) model->parameters()[i].copy_(start[i]);
    }
    auto qat = prepare_qat(captured, four_bit_weights(), {.learned = learned});
    train(*qat, training, 200, 0.003, &schedule);
    trained[learned == LearnedParameters::scale] = accuracy(*convert_qat(qat), unseen);
  }
  RecordProperty("accuracy", std::to_string(exact) + " float, " + std::to_string(rounded) + " rounded, " +
                                 std::to_string(trained[0]) + " trained, " + std::to_string(trained[1]) +
                                 " trained with learned scales");
  EXPECT_GT(exact, 0.9);
  EXPECT_LT(rounded, exact - 0.05) << "4 bits must hurt, or this test shows nothing";
  EXPECT_GT(trained[0], rounded + 0.05);
  EXPECT_GT(trained[1], rounded + 0.05);
  EXPECT_GT(trained[0], exact - 0.04);
}

}  // namespace
}  // namespace ulp::quant
