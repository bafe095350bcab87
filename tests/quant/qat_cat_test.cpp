// Training a quantized network that joins, cuts and shuffles channels.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "residual_net.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/quantize.h"

namespace ulp::quant {
namespace {

using test::data;

/// Cats with operands behind a relu, without one, that pass by, that others read and that are cats
/// themselves.
struct JoiningNetImpl : torch::nn::Module {
  JoiningNetImpl() {
    stem = register_module("stem", conv(3, 8, 3));
    bn = register_module("bn", torch::nn::BatchNorm2d(8));
    left = register_module("left", conv(4, 4, 3));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    right = register_module("right", conv(8, 6, 1));
    last = register_module("last", conv(22, 8, 1));
    fc = register_module("fc", torch::nn::Linear(8, 10));
  }
  static torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).padding(kernel / 2));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = at::channel_shuffle(at::relu(bn(stem(x))), 2);
    const auto halves = y.chunk(2, 1);
    const at::Tensor inner = at::cat({halves[0], norm(left(halves[1]))}, 1);
    const at::Tensor outer =
        at::cat({at::cat({inner, at::relu(right(y))}, 1), at::avg_pool2d(y, 3, 1, 1)}, 1);
    return fc(at::relu(last(outer)).mean({2, 3}));
  }
  torch::nn::Conv2d stem{nullptr}, left{nullptr}, right{nullptr}, last{nullptr};
  torch::nn::BatchNorm2d bn{nullptr}, norm{nullptr};
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(JoiningNet);

struct CatVariant {
  const char* name;
  QatOptions options;
};

TEST(QatOfCats, ConvertsToTheIntegersOfTheForwardPassBitForBit) {
  for (const CatVariant& v :
       {CatVariant{"fast", {}}, CatVariant{"exact", {BatchNormFolding::exact}},
        CatVariant{"lsq", {BatchNormFolding::fast, LearnedParameters::scale_and_zero_point}}}) {
    torch::manual_seed(7);
    JoiningNet model;
    const auto captured = capture(model, {data(1, 4)});
    auto qat = prepare_qat(captured, Recipe::x86_int8(), v.options);
    torch::optim::SGD optimizer(qat->parameters(), 0.01);
    for (uint64_t i = 0; i < 3; ++i) {
      optimizer.zero_grad();
      const at::Tensor x = data(10 + i, 8);
      torch::cross_entropy_loss(qat->forward(x), (x.mean({1, 2, 3}) > 0.5).to(at::kLong)).backward();
      optimizer.step();
    }
    for (const auto& p : captured->named_parameters()) EXPECT_TRUE(p.value().grad().defined()) << p.key();
    qat->eval();
    const auto converted = convert_qat(qat);
    converted->graph().verify();
    const at::Tensor x = data(50, 16);
    const at::Tensor trained = qat->forward(x), integers = converted->forward(x);
    EXPECT_TRUE(trained.equal(integers)) << v.name << ": " << (trained - integers).abs().max();
    EXPECT_FALSE(trained.equal(captured->forward(x)));
  }
}

}  // namespace
}  // namespace ulp::quant
