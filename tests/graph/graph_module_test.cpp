// GraphModule: results of every shape, names, sharing, errors; TorchScript files.
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include "same.h"

namespace {

using namespace ulp;
using namespace ulp::test;
namespace nn = torch::nn;

struct SeveralImpl : nn::Module {
  SeveralImpl() {
    a = register_module("a", nn::Linear(3, 4));
    b = register_module("b", nn::Linear(4, 3));
    scale = register_parameter("scale", torch::full({1}, 1.5));
    register_buffer("offset", torch::randn({4}));
    b->weight =
        a->weight;  // the tied weights of an autoencoder would be transposed; here sharing is the point
  }
  std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>> forward(const at::Tensor& x,
                                                                     const at::Tensor& y) {
    at::Tensor h = a(x) + named_buffers()["offset"];
    return {h * scale, {y, torch::matmul(h, b->weight) + y.split(1, 1)[1]}};
  }
  nn::Linear a{nullptr}, b{nullptr};
  at::Tensor scale;
};

TEST(GraphModule, SeveralInputsAndNestedOutputs) {
  auto model = std::make_shared<SeveralImpl>();
  auto captured = check(*model, {torch::randn({3, 3}), torch::randn({3, 2})});
  c10::IValue result = captured->run({torch::randn({4, 3}), torch::randn({4, 2})});
  ASSERT_TRUE(result.isTuple());
  EXPECT_TRUE(result.toTupleRef().elements()[1].isTuple());
  EXPECT_EQ(captured->forward_all({torch::randn({4, 3}), torch::randn({4, 2})}).size(), 3);
  EXPECT_ERROR(captured->forward({torch::randn({4, 3}), torch::randn({4, 2})}), "one tensor");
}

struct TiedImpl : nn::Module {
  TiedImpl() {
    encoder = register_module("encoder", nn::Linear(nn::LinearOptions(4, 4).bias(false)));
    inner = register_module("inner", nn::BatchNorm1d(4));
    decoder = register_module("decoder", encoder);
    register_parameter("alias", encoder->weight);
  }
  std::vector<at::Tensor> forward(const at::Tensor& x) { return {encoder(x), decoder(inner(encoder(x)))}; }
  nn::Linear encoder{nullptr}, decoder{nullptr};
  nn::BatchNorm1d inner{nullptr};
};

TEST(GraphModule, SharedParametersStayShared) {
  auto model = std::make_shared<TiedImpl>();
  auto captured = check(*model, {torch::randn({3, 4})});
  auto parameters = captured->named_parameters();
  EXPECT_TRUE(parameters["alias"].is_same(parameters["encoder.weight"]));
  EXPECT_TRUE(captured->run({torch::randn({2, 4})}).isTensorList());
}

TEST(GraphModule, TrainsWithAnOptimizerLikeTheModel) {
  torch::manual_seed(4);
  nn::Sequential model(nn::Linear(4, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Dropout(0.2), nn::Linear(8, 2));
  auto captured = ulp::capture(model, {torch::randn({3, 4})});
  at::Tensor x = torch::randn({16, 4}), target = torch::randn({16, 2});
  auto train = [&](const std::function<at::Tensor(at::Tensor)>& forward) {
    torch::manual_seed(9);
    torch::optim::SGD optimizer(captured->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int i = 0; i < 5; ++i) {
      optimizer.zero_grad();
      torch::mse_loss(forward(x), target).backward();
      optimizer.step();
    }
    Tensors result;
    for (const at::Tensor& p : captured->parameters()) result.push_back(p.detach().clone());
    return result;
  };
  Tensors start;
  for (const at::Tensor& p : captured->parameters()) start.push_back(p.detach().clone());
  captured->train();
  Tensors by_graph = train([&](const at::Tensor& in) { return captured->forward(in); });
  for (size_t i = 0; i < start.size(); ++i) captured->parameters()[i].data().copy_(start[i]);
  model->train();
  Tensors by_model = train([&](const at::Tensor& in) { return model->forward(in); });
  for (size_t i = 0; i < start.size(); ++i) {
    EXPECT_TRUE(torch::equal(by_graph[i], by_model[i])) << i;
  }
  EXPECT_FALSE(torch::equal(by_graph[0], start[0]));
}

TEST(GraphModule, ToAnotherDtypeTakesEffect) {
  nn::Linear model(3, 2);
  auto captured = ulp::capture(model, {torch::randn({2, 3})});
  captured->to(torch::kDouble);
  at::Tensor x = torch::randn({4, 3}, at::kDouble);
  EXPECT_TRUE(torch::equal(captured->forward(x), model(x)));
  EXPECT_EQ(captured->forward(x).scalar_type(), at::kDouble);
}

TEST(GraphModule, RefusesInputsThatDoNotFit) {
  nn::Linear model(3, 2);
  auto captured = ulp::capture(model, {torch::randn({2, 3})});
  EXPECT_ERROR(captured->forward(Tensors{}), "expected 1 inputs, got 0");
  EXPECT_ERROR(captured->forward(torch::randn({2, 4})), "expected size 3 in dimension 1 of 'input'");
  EXPECT_ERROR(captured->forward(torch::randn({2, 3, 1})), "2 dimensions");
  EXPECT_ERROR(captured->forward(torch::ones({2, 3}, at::kLong)), "dtype");
  EXPECT_ERROR(captured->forward(at::Tensor()), "defined");
  auto several = std::make_shared<SeveralImpl>();
  auto two = ulp::capture(*several, {torch::randn({3, 3}), torch::randn({3, 2})});
  EXPECT_ERROR(two->run({torch::randn({4, 3}), torch::randn({5, 2})}), "batch size 4");
}

torch::jit::Module load(const std::string& name) {
  return torch::jit::load(std::string(ULP_SOURCE_DIR) + "/tests/golden/torchscript/" + name);
}

void check_script(torch::jit::Module model, const Tensors& examples, bool under_autocast = true) {
  auto captured = ulp::capture(model, examples);
  Named tensors;
  for (const auto& p : model.named_parameters()) tensors.parameters.emplace_back(p.name, p.value);
  for (const auto& b : model.named_buffers()) tensors.buffers.emplace_back(b.name, b.value);
  expect_equivalent(
      [&](const Tensors& inputs) {
        torch::jit::GraphOptimizerEnabledGuard plain(false);
        return model.forward(std::vector<c10::IValue>(inputs.begin(), inputs.end()));
      },
      [&](bool on) { model.train(on); }, tensors, *captured, examples, {}, under_autocast);
}

TEST(TorchScript, ScriptedConvolutions) {
  check_script(load("conv_net.pt"), {torch::randn({3, 3, 6, 6})});
}

TEST(TorchScript, ScriptedLstmWithTokens) {
  check_script(load("recurrent.pt"), {torch::randint(0, 11, {3, 4})});
}

TEST(TorchScript, TracedConvolutions) {
  // Traced convolutions stay in fp32 under autocast, those of the graph do not (traced_convolution_test.cpp).
  check_script(load("traced.pt"), {torch::randn({3, 3, 6, 6})}, /*under_autocast=*/false);
}

TEST(TorchScript, BranchOnDataIsRefused) {
  torch::jit::Module model = load("branch.pt");
  EXPECT_ERROR(ulp::capture(model, {torch::randn({2, 3})}), "data-dependent");
}

}  // namespace
