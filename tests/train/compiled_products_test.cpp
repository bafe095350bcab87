// Products of compiled steps on packed sides: wide layers, and products of numbers rounded to bf16.
#include <random>

#include "compiled_support.h"
#include "error_of.h"
#include "ulp/prune/masks/apply_mask.h"
#include "ulp/prune/masks/bit_mask.h"

namespace ulp::train {
namespace {

using test::expect_gradients;
using test::Tensors;

TEST(CompiledProducts, OfWideLayersHaveLibTorchsGradients) {
  torch::manual_seed(21);
  for (const int64_t batch : {1, 5, 131}) {
    const Tensors parameters = {torch::randn({300, 250}) / 16, torch::randn({300}),
                                torch::randn({300, 310}) / 17, torch::randn({3, 310}) / 18};
    // Of thousands of numbers one is so near 0 that rounding takes it to the other side of a kink.
    const bool kinks = batch < 100;
    const test::Function function = [=](const Tensors& p, const Tensors& x) {
      // A weight as it is stored, one that is transposed, and one that is read twice.
      at::Tensor y = torch::linear(x[0], p[0], p[1]);
      y = torch::tanh(torch::linear(kinks ? torch::relu(y) : torch::sigmoid(y), p[2].t()));
      y = torch::linear(y, p[2]);
      y = torch::linear(kinks ? torch::leaky_relu(y, 0.1) : torch::tanh(y), p[2].t());
      return torch::linear(y, p[3]);
    };
    expect_gradients("batch " + std::to_string(batch), function, parameters, {torch::randn({batch, 250})},
                     LossFunction::mse(), torch::randn({batch, 3}));
  }
}

/// Rounded to bf16, to nearest even; the numbers of these tests are normal ones.
at::Tensor rounded(const at::Tensor& x) {
  return x.to(at::kBFloat16).to(at::kFloat);
}

/// Chains of multiply-adds from the first inner index to the last.
at::Tensor chains(const at::Tensor& a, const at::Tensor& b, const at::Tensor& start) {
  at::Tensor made = torch::empty({a.size(0), b.size(1)});
  const auto left = a.accessor<float, 2>(), right = b.accessor<float, 2>();
  auto to = made.accessor<float, 2>();
  for (int64_t i = 0; i < a.size(0); ++i) {
    for (int64_t j = 0; j < b.size(1); ++j) {
      float sum = start.defined() ? start[j].item<float>() : 0.0F;
      for (int64_t k = 0; k < a.size(1); ++k) sum = std::fmaf(left[i][k], right[k][j], sum);
      to[i][j] = sum;
    }
  }
  return made;
}

/// y = x W^T + b and the sum of y c: its gradients are products, too.
TEST(CompiledProducts, RoundBothSidesToBf16AndSumInFloats) {
  torch::manual_seed(22);
  constexpr int64_t kRows = 37, kInputs = 45, kOutputs = 34;
  test::FunctionNet net({torch::randn({kRows, kInputs}), torch::randn({kOutputs, kInputs}),
                         torch::randn({kOutputs}), torch::randn({kRows, kOutputs})});
  const test::Function function = [](const Tensors& p, const Tensors& x) {
    return (torch::linear(p[0], p[1], p[2]) * p[3]).sum() + x[0].sum() * 0.0;
  };
  const auto graph = test::capture_function(net, function, {torch::randn({2, 1})});
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0});
  CompiledStep step = compile(graph, LossFunction::none(), optimizer, {.products = ProductType::bf16});
  step.step({torch::randn({2, 1})});
  const auto& p = net.parameters_in_order;
  const at::NoGradGuard no_grad;
  const auto gradient = [&](size_t i) {
    for (const at::Tensor& one : graph->parameters()) {
      if (one.data_ptr() == p[i].data_ptr()) return step.gradient(one);
    }
    return at::Tensor();
  };
  const at::Tensor x = rounded(p[0]), w = rounded(p[1]), c = rounded(p[3]);
  EXPECT_TRUE(torch::equal(gradient(3), chains(x, w.t().contiguous(), p[2]))) << "the result";
  EXPECT_TRUE(torch::equal(gradient(0), chains(c, w, {}))) << "of the input";
  EXPECT_TRUE(torch::equal(gradient(1), chains(c.t().contiguous(), x, {}))) << "of the weight";
}

/// Convolutions of any window in bf16 have the bits of those in fp32 of numbers that were rounded before.
TEST(CompiledProducts, OfConvolutionsInBf16AreThoseOfRoundedNumbers) {
  torch::manual_seed(25);
  std::mt19937_64 random(26);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int i = 0; i < 30; ++i) {
    const int64_t inputs = draw(1, 37), outputs = draw(1, 40), height = draw(5, 12), width = draw(5, 12);
    const int64_t kernel = draw(1, 3), stride = draw(1, 2), pad = draw(0, 1), dilation = draw(1, 2);
    const at::Tensor x = torch::randn({2, inputs, height, width}),
                     w = torch::randn({outputs, inputs, kernel, draw(1, 3)});
    const auto convolve = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
      return torch::conv2d(a, b, bias, {stride, stride}, {pad, pad}, {dilation, dilation});
    };
    const at::Tensor factors = torch::randn_like(convolve(x, w, {}));
    const test::Function function = [&](const Tensors& p, const Tensors& given) {
      return (convolve(p[0], p[1], p[2]) * p[3]).sum() + given[0].sum() * 0.0;
    };
    const at::Tensor bias = torch::randn({outputs}), none = torch::randn({2, 1});
    Tensors made[2];
    for (const bool bf16 : {false, true}) {
      const auto number = [&](const at::Tensor& t) { return bf16 ? t : rounded(t); };
      test::FunctionNet net({number(x), number(w), bias, number(factors)});
      const auto graph = test::capture_function(net, function, {none});
      amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0});
      CompiledStep step = compile(graph, LossFunction::none(), optimizer,
                                  {.products = bf16 ? ProductType::bf16 : ProductType::fp32});
      step.step({none});
      for (const size_t one : {size_t{3}, size_t{0}}) {  // the result, and the gradient of the input
        for (const at::Tensor& parameter : graph->parameters()) {
          if (parameter.data_ptr() == net.parameters_in_order[one].data_ptr())
            made[bf16 ? 1 : 0].push_back(step.gradient(parameter).clone());
        }
      }
    }
    ASSERT_EQ(made[0].size(), 2);
    EXPECT_TRUE(torch::equal(made[0][0], made[1][0]))
        << i << ": " << inputs << " to " << outputs << ", kernel " << kernel;
    EXPECT_TRUE(torch::equal(made[0][1], made[1][1]))
        << i << ": " << inputs << " to " << outputs << ", kernel " << kernel;
  }
}

/// A block of MobileNetV2 in bf16: pointwise convolutions are products, the others stay fp32.
TEST(CompiledProducts, OfPointwiseConvolutionsInBf16) {
  torch::manual_seed(24);
  const Tensors parameters = {torch::randn({12, 5, 1, 1}) / 2, torch::randn({12}),
                              torch::randn({12, 1, 3, 3}) / 3, torch::randn({5, 12, 1, 1}) / 3,
                              torch::randn({3, 5})};
  const test::Function function = [](const Tensors& p, const Tensors& x) {
    const at::Tensor wide = torch::silu(torch::conv2d(x[0], p[0], p[1]));
    const at::Tensor deep = torch::silu(torch::conv2d(wide, p[2], {}, {1, 1}, {1, 1}, {1, 1}, 12));
    return torch::linear((torch::conv2d(deep, p[3]) + x[0]).mean({2, 3}), p[4]);
  };
  test::FunctionNet net(parameters);
  const Tensors inputs = {torch::randn({6, 5, 7, 6})};
  const at::Tensor targets = torch::randn({6, 3});
  const auto graph = test::capture_function(net, function, inputs);
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0});
  CompiledStep exact = compile(graph, LossFunction::mse(), optimizer),
               step = compile(graph, LossFunction::mse(), optimizer, {.products = ProductType::bf16});
  exact.step(inputs, targets);
  step.step(inputs, targets);
  EXPECT_NE(step.loss(), exact.loss());
  EXPECT_NEAR(step.loss(), exact.loss(), 0x1p-7F * exact.loss());
  for (const at::Tensor& one : graph->parameters()) {
    const at::Tensor made = step.gradient(one), wanted = exact.gradient(one);
    EXPECT_LE((made - wanted).norm().item<float>(), 0x1p-5F * wanted.norm().item<float>()) << one.sizes();
  }
}

/// Pruned pointwise convolutions in bf16, and one of more channels than windows of other convolutions may have, in fp32.
TEST(CompiledProducts, OfMaskedAndWidePointwiseConvolutions) {
  torch::manual_seed(27);
  const at::Tensor weight = torch::randn({6, 5, 1, 1}),
                   bits = prune::pack_mask(torch::rand({6, 5, 1, 1}) < 0.6);
  const test::Function function = [&](const Tensors& p, const Tensors& x) {
    return torch::linear(torch::conv2d(x[0], prune::apply_mask(p[0], bits, false)).mean({2, 3}), p[1]);
  };
  test::FunctionNet net({weight, torch::randn({2, 6})});
  const Tensors inputs = {torch::randn({3, 5, 4, 4})};
  const at::Tensor targets = torch::randn({3, 2});
  const auto graph = test::capture_function(net, function, inputs);
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0});
  CompiledStep exact = compile(graph, LossFunction::mse(), optimizer),
               step = compile(graph, LossFunction::mse(), optimizer, {.products = ProductType::bf16});
  exact.step(inputs, targets);
  step.step(inputs, targets);
  for (const at::Tensor& one : graph->parameters()) {
    const at::Tensor wanted = exact.gradient(one);
    EXPECT_LE((step.gradient(one) - wanted).norm().item<float>(), 0x1p-6F * wanted.norm().item<float>());
  }
  const test::Function wide = [](const Tensors& p, const Tensors& x) {
    return torch::linear(torch::tanh(torch::conv2d(x[0], p[0])).mean({2, 3}), p[1]);
  };
  expect_gradients("4,000 channels", wide, {torch::randn({4000, 3, 1, 1}), torch::randn({2, 4000}) / 60},
                   {torch::randn({2, 3, 2, 2})}, LossFunction::mse(), torch::randn({2, 2}));
}

/// A transformer layer in bf16: near its gradients in fp32, and nearer than LibTorch's autocast is, on any threads.
TEST(CompiledProducts, InBf16AreNearThoseOfFp32) {
  torch::manual_seed(23);
  constexpr int64_t kWidth = 32, kLength = 12;
  const Tensors parameters = {torch::randn({3 * kWidth, kWidth}) / 5, torch::randn({kWidth, kWidth}) / 5,
                              torch::ones({kWidth}), torch::zeros({kWidth}), torch::randn({4, kWidth}) / 5};
  const test::Function function = [](const Tensors& p, const Tensors& x) {
    const auto qkv = torch::linear(x[0], p[0]).chunk(3, -1);
    const auto heads = [](const at::Tensor& t) { return t.unflatten(2, {4, 8}).transpose(1, 2); };
    const at::Tensor y =
        torch::scaled_dot_product_attention(heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), {}, 0.0, true)
            .transpose(1, 2)
            .flatten(2);
    return torch::linear(torch::layer_norm(x[0] + torch::gelu(torch::linear(y, p[1])), {kWidth}, p[2], p[3]),
                         p[4])
        .select(1, kLength - 1);
  };
  const Tensors inputs = {torch::randn({5, kLength, kWidth})};
  const at::Tensor targets = torch::randn({5, 4});
  test::FunctionNet net(parameters);
  const auto graph = test::capture_function(net, function, inputs);
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0});
  CompiledStep exact = compile(graph, LossFunction::mse(), optimizer),
               step = compile(graph, LossFunction::mse(), optimizer,
                              {.threads = 1, .products = ProductType::bf16}),
               threads = compile(graph, LossFunction::mse(), optimizer,
                                 {.threads = 3, .products = ProductType::bf16});
  exact.step(inputs, targets);
  step.step(inputs, targets);
  {
    const test::FinePieces fine;
    threads.step(inputs, targets);
  }
  EXPECT_NEAR(step.loss(), exact.loss(), 0x1p-7F * exact.loss());
  EXPECT_NE(step.loss(), exact.loss());
  for (const at::Tensor& one : graph->parameters()) {
    const at::Tensor made = step.gradient(one), wanted = exact.gradient(one);
    EXPECT_TRUE(torch::equal(made, threads.gradient(one)));
    EXPECT_LE((made - wanted).norm().item<float>(), 0x1p-6F * wanted.norm().item<float>()) << one.sizes();
  }
}

}  // namespace
}  // namespace ulp::train
