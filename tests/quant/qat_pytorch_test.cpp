// Where quantization-aware training has to be PyTorch's, bit for bit: layers without batch norm, and learned
// parameters where a recipe asks for PyTorch's gradients. The reference is spelled out with LibTorch's operators.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>

#include "ulp/graph/capture/capture.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/quantize.h"

namespace ulp::quant {
namespace {

/// A moving average of bounds and the fake quantization that follows it: torch.ao's default for activations.
class ReferenceActivation {
 public:
  at::Tensor operator()(const at::Tensor& x) {
    const at::NoGradGuard no_grad;
    const at::Tensor low = x.min(), high = x.max();
    min_ = min_.defined() ? min_ + 0.01 * (low - min_) : low;
    max_ = max_.defined() ? max_ + 0.01 * (high - max_) : high;
    const QParams params = choose_qparams(min_, max_, Scheme{});
    const at::AutoGradMode grad(true);
    return at::fake_quantize_per_tensor_affine(x, params.scale.item<double>(), params.zero_point.item<int>(),
                                               0, 255);
  }

 private:
  at::Tensor min_, max_;
};

at::Tensor reference_weight(const at::Tensor& weight) {
  const at::Tensor scale = weight.detach().flatten(1).abs().amax(1) / 127.0F;
  return at::fake_quantize_per_channel_affine(weight, scale, torch::zeros(scale.sizes(), at::kInt), 0, -127,
                                              127);
}

/// conv, relu, linear, relu, linear, all with biases and without batch norm.
torch::nn::Sequential make_model() {
  torch::manual_seed(11);
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)), torch::nn::ReLU(),
                               torch::nn::Flatten(), torch::nn::Linear(4 * 16, 12), torch::nn::ReLU(),
                               torch::nn::Linear(12, 3));
}

TEST(QatAsPyTorch, LossesOfANetWithBiasesAreTheSameBits) {
  auto ours = make_model(), theirs = make_model();
  torch::manual_seed(12);
  const at::Tensor example = torch::randn({16, 3, 6, 6});
  auto qat = prepare_qat(capture(ours, {example}), Recipe::x86_int8());
  const auto p = theirs->parameters();
  ReferenceActivation input, first, second;
  const auto reference = [&](const at::Tensor& x) {
    at::Tensor y = at::relu(at::conv2d(input(x), reference_weight(p[0]), p[1]));
    y = at::relu(at::linear(first(y).flatten(1), reference_weight(p[2]), p[3]));
    return at::linear(second(y), reference_weight(p[4]), p[5]);
  };
  torch::optim::SGD our_steps(qat->parameters(), 0.1), their_steps(p, 0.1);
  for (int step = 0; step < 10; ++step) {
    const at::Tensor x = torch::randn({16, 3, 6, 6}), labels = x.mean({2, 3}).argmax(1);
    our_steps.zero_grad();
    their_steps.zero_grad();
    const at::Tensor loss = torch::cross_entropy_loss(qat->forward(x), labels);
    const at::Tensor expected = torch::cross_entropy_loss(reference(x), labels);
    ASSERT_EQ(loss.item<float>(), expected.item<float>()) << "step " << step;
    loss.backward();
    expected.backward();
    our_steps.step();
    their_steps.step();
  }
  // In eval mode the biases are those of the integers.
  qat->eval();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(qat->forward(example).equal(convert_qat(qat)->forward(example)));
  EXPECT_FALSE(qat->forward(example).equal(reference(example)));
}

/// Gradients of a linear layer without bias whose input and weight have learned parameters.
struct Learned {
  std::map<std::string, at::Tensor> values, gradients;  // by the module's names

  Learned(const at::Tensor& x, const at::Tensor& upstream, LearnedGradients whose) {
    torch::manual_seed(13);
    torch::nn::Sequential model(
        torch::nn::Linear(torch::nn::LinearOptions(x.size(1), upstream.size(1)).bias(false)));
    auto qat = prepare_qat(capture(model, {x}), Recipe::x86_int8(),
                           {.learned = LearnedParameters::scale_and_zero_point, .learned_gradients = whose});
    qat->forward(x);
    const auto parameters = qat->named_parameters();
    {
      const at::NoGradGuard no_grad;  // every value a tie, an odd zero point, values outside of the range
      parameters["quantizer_input.scale"].fill_(0.25);
      parameters["quantizer_input.zero_point"].fill_(3);
    }
    (qat->forward(x) * upstream).sum().backward();
    for (const auto& p : parameters) {
      const std::string name = p.key().ends_with(".weight.scale") ? "weight scale" : p.key();
      values[name] = p.value().detach().clone();
      gradients[name] = p.value().grad().clone();
    }
  }
};

TEST(QatAsPyTorch, LearnedGradientsAtTiesAndAtTheEndsOfTheRange) {
  torch::manual_seed(14);
  const at::Tensor x = ((torch::arange(-16, 272) + 0.5) * 0.25).view({9, 32}),
                   upstream = torch::randn({9, 5});
  const Learned own(x, upstream, LearnedGradients::forward), pytorch(x, upstream, LearnedGradients::pytorch);

  std::map<std::string, at::Tensor> theirs;
  for (const auto& [name, value] : pytorch.values) theirs[name] = value.clone().requires_grad_();
  const at::Tensor input = at::_fake_quantize_learnable_per_tensor_affine(
      x, theirs.at("quantizer_input.scale"), theirs.at("quantizer_input.zero_point"), 0, 255,
      1 / std::sqrt(32.0 * 255));
  const at::Tensor weight = at::_fake_quantize_learnable_per_channel_affine(
      theirs.at("0.weight"), theirs.at("weight scale"), torch::zeros({5}), 0, -127, 127,
      1 / std::sqrt(32.0 * 127));
  (at::linear(input, weight) * upstream).sum().backward();
  ASSERT_EQ(theirs.size(), 4U);
  for (const auto& [name, value] : theirs) {
    EXPECT_TRUE(pytorch.gradients.at(name).equal(value.grad())) << name;
  }
  // Those of the forward pass's own codes differ where ties and ends count, and nowhere else.
  EXPECT_FALSE(at::allclose(own.gradients.at("quantizer_input.scale"),
                            theirs.at("quantizer_input.scale").grad(), 1e-3));
  EXPECT_TRUE(at::allclose(own.gradients.at("weight scale"), theirs.at("weight scale").grad(), 1e-3, 1e-5));
}

TEST(QatAsPyTorch, TheSwitchIsAFieldOfTheRecipe) {
  QatRecipe recipe;
  EXPECT_EQ(recipe.options.learned_gradients, LearnedGradients::forward);
  recipe.options.learned_gradients = LearnedGradients::pytorch;
  EXPECT_NE(recipe.to_json().find("\"learned_gradients\": \"pytorch\""), std::string::npos)
      << recipe.to_json();
  EXPECT_EQ(QatRecipe::from_json(recipe.to_json()), recipe);
}

}  // namespace
}  // namespace ulp::quant
