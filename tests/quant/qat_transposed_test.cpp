// Transposed convolutions in quantization-aware training: the phases that static quantization computes them
// in, with gradients.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "ulp/graph/capture/capture.h"
#include "ulp/graph/passes/transposed_phases.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/quantize.h"

namespace ulp::quant {
namespace {

namespace nn = torch::nn;

/// One shape of a transposed convolution.
struct Up {
  int64_t kernel, stride, padding, more, groups = 1, dilation = 1;
  nn::ConvTranspose2dOptions options(int64_t in, int64_t out) const {
    return nn::ConvTranspose2dOptions(in, out, kernel)
        .stride(stride)
        .padding(padding)
        .output_padding(more)
        .groups(groups)
        .dilation(dilation);
  }
};
constexpr Up kUps[] = {{2, 2, 0, 0}, {3, 2, 1, 1},    {4, 2, 1, 0},      {3, 1, 1, 0},
                       {3, 3, 0, 0}, {3, 2, 0, 0, 2}, {2, 2, 1, 0, 1, 2}};

struct PhaseDecoderImpl : nn::Module {
  nn::Conv2d first = register_module("first", nn::Conv2d(nn::Conv2dOptions(3, 6, 3).padding(1)));
  nn::ConvTranspose2d up{nullptr};
  nn::BatchNorm2d norm{nullptr};
  nn::Conv2d last = register_module("last", nn::Conv2d(nn::Conv2dOptions(4, 3, 1)));
  bool relu = true;
  PhaseDecoderImpl(const Up& shape, bool has_norm, bool has_relu) : relu(has_relu) {
    up = register_module("up", nn::ConvTranspose2d(shape.options(6, 4)));
    if (has_norm) norm = register_module("norm", nn::BatchNorm2d(4));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = up(torch::relu(first(x)));
    if (norm) y = norm(y);
    return last(relu ? torch::relu(y) : y);
  }
};
TORCH_MODULE(PhaseDecoder);

at::Tensor drawn(uint64_t seed, int64_t n) {
  torch::manual_seed(seed);
  return torch::randn({n, 3, 7, 6});
}

void train_a_while(QatModule& module, int steps) {
  torch::optim::SGD optimizer(module.parameters(), 0.02);
  module.train();
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    const at::Tensor y = module.forward(drawn(static_cast<uint64_t>(20 + i), 4));
    (y - 0.3).square().mean().backward();
    optimizer.step();
  }
}

TEST(QatOfTransposed, EvalResultsAreThoseOfTheConvertedGraphBitForBit) {
  uint64_t seed = 5;
  for (const Up& shape : kUps) {
    for (const bool has_norm : {false, true}) {
      for (const bool has_relu : {false, true}) {
        const BatchNormFolding folding = seed % 2 == 0 ? BatchNormFolding::fast : BatchNormFolding::exact;
        torch::manual_seed(++seed);
        PhaseDecoder model(shape, has_norm, has_relu);
        SCOPED_TRACE(testing::Message()
                     << "kernel " << shape.kernel << " stride " << shape.stride << " groups " << shape.groups
                     << " norm " << has_norm << " relu " << has_relu);
        auto qat = prepare_qat(capture(model, {drawn(1, 2)}), Recipe::x86_int8(), {.folding = folding});
        EXPECT_EQ(qat->parameters().size(), model->parameters().size());
        train_a_while(*qat, 3);
        qat->eval();
        const auto converted = convert_qat(qat);
        const at::Tensor x = drawn(50, 5);
        const torch::NoGradGuard no_grad;
        const at::Tensor trained = qat->forward(x), integers = converted->forward(x);
        EXPECT_TRUE(trained.equal(integers)) << (trained - integers).abs().max();
        EXPECT_TRUE(converted->parameters().empty());
      }
    }
  }
}

/// A layer by itself against LibTorch's operators: the weight's phases rounded, a scale for each channel of
/// each phase.
TEST(QatOfTransposed, GradientsAreThoseOfLibTorchsFakeQuantization) {
  for (const Up& shape : kUps) {
    SCOPED_TRACE(testing::Message() << "kernel " << shape.kernel << " stride " << shape.stride);
    torch::manual_seed(9);
    nn::Sequential ours(nn::ConvTranspose2d(shape.options(6, 4))),
        theirs(nn::ConvTranspose2d(shape.options(6, 4)));
    {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < 2; ++i) theirs->parameters()[i].copy_(ours->parameters()[i]);
    }
    const at::Tensor x = torch::randn({4, 6, 5, 5});
    auto qat = prepare_qat(capture(ours, {x}), Recipe::x86_int8());
    const at::Tensor got = qat->forward(x), weights = torch::randn(got.sizes());
    (got * weights).sum().backward();

    const at::Tensor weight = theirs->parameters()[0], bias = theirs->parameters()[1];
    const auto two = [](int64_t number) { return std::vector<int64_t>{number, number}; };
    const graph::TransposedPhases phases(weight.detach(), two(shape.stride), two(shape.padding),
                                         two(shape.more), two(shape.dilation), shape.groups);
    const QParams input = choose_qparams(x.min(), x.max(), Scheme{});
    const at::Tensor codes = at::fake_quantize_per_tensor_affine(x, input.scale.item<double>(),
                                                                 input.zero_point.item<int>(), 0, 255);
    // The scale of each number is that of its phase and channel.
    const at::Tensor parts = phases.weight_of(weight);
    const at::Tensor scale = parts.detach().flatten(1).abs().amax(1) / 127.0F;
    const at::Tensor rounded = at::fake_quantize_per_channel_affine(
        parts, scale, torch::zeros(scale.sizes(), at::kInt), 0, -127, 127);
    // Back to a transposed weight: each number stands in one place of the phases.
    const at::Tensor flat = phases.taps.view({-1});
    at::Tensor whole = torch::zeros({weight.numel() + 1}).index_put({flat}, rounded.view({-1}));
    whole = whole.narrow(0, 0, weight.numel()).view(weight.sizes());
    const at::Tensor want = at::conv_transpose2d(codes, whole, bias, two(shape.stride), two(shape.padding),
                                                 two(shape.more), shape.groups, two(shape.dilation));
    (want * weights).sum().backward();
    EXPECT_TRUE(at::allclose(got, want, 1e-4, 1e-4));
    EXPECT_TRUE(at::allclose(ours->parameters()[0].grad(), weight.grad(), 1e-3, 1e-3));
    EXPECT_TRUE(at::allclose(ours->parameters()[1].grad(), bias.grad(), 1e-3, 1e-3));
  }
}

TEST(QatOfTransposed, LayersThatTheRecipeSkipsStayWhole) {
  torch::manual_seed(10);
  PhaseDecoder model(kUps[1], true, true);
  Recipe recipe = Recipe::x86_int8();
  recipe.skip_modules = {"up"};
  auto qat = prepare_qat(capture(model, {drawn(1, 2)}), recipe);
  train_a_while(*qat, 2);
  qat->eval();
  const auto converted = convert_qat(qat);
  const torch::NoGradGuard no_grad;
  const at::Tensor x = drawn(50, 3);
  EXPECT_TRUE(at::allclose(qat->forward(x), converted->forward(x), 1e-2, 1e-2));
  const auto& nodes = converted->graph().nodes();
  EXPECT_TRUE(
      std::ranges::any_of(nodes, [](const auto& node) { return node->is("aten::conv_transpose2d"); }));
}

TEST(QatOfTransposed, LearnedScalesTrain) {
  torch::manual_seed(11);
  PhaseDecoder model(kUps[0], true, true);
  auto qat =
      prepare_qat(capture(model, {drawn(1, 2)}), Recipe::x86_int8(), {.learned = LearnedParameters::scale});
  qat->forward(drawn(2, 4));  // starts the scales
  train_a_while(*qat, 3);
  qat->eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor x = drawn(50, 3);
  EXPECT_TRUE(qat->forward(x).equal(convert_qat(qat)->forward(x)));
}

}  // namespace
}  // namespace ulp::quant
