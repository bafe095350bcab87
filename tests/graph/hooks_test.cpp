// Gradient hooks: those that forward sets are refused by name, those on parameters are the user's own.
#include "same.h"

namespace {

using namespace ulp;
using namespace ulp::test;
namespace nn = torch::nn;

at::Tensor halve(const at::Tensor& gradient) {
  return gradient / 2;
}

struct HookedBlock : nn::Module {
  using Body = std::function<at::Tensor(HookedBlock&, at::Tensor)>;
  explicit HookedBlock(Body body) : body(std::move(body)) { fc = register_module("fc", nn::Linear(4, 4)); }
  at::Tensor forward(const at::Tensor& x) { return body(*this, x); }
  Body body;
  nn::Linear fc{nullptr};
};

struct HookedModel : nn::Module {
  explicit HookedModel(HookedBlock::Body body) {
    block = register_module("block1", std::make_shared<HookedBlock>(std::move(body)));
    head = register_module("head", nn::Linear(4, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return head(block->forward(x)); }
  std::shared_ptr<HookedBlock> block;
  nn::Linear head{nullptr};
};

std::string hook_refusal(const HookedBlock::Body& body) {
  HookedModel model(body);
  return error_of([&] { ulp::capture(model, {torch::randn({2, 4})}); });
}

TEST(GradientHooks, OnIntermediatesAreRefused) {
  const std::string text = hook_refusal([](HookedBlock& m, at::Tensor x) {
    at::Tensor y = m.fc(x).relu();
    y.register_hook(halve);
    return y;
  });
  EXPECT_SAYS(text, "[graph.capture] a gradient hook on the result of aten::relu in module 'block1'");
  EXPECT_SAYS(text, "register_hook()");
  EXPECT_SAYS(hook_refusal([](HookedBlock& m, at::Tensor x) {
                at::Tensor y = m.fc(x);
                y.retain_grad();
                return y.tanh();
              }),
              "aten::addmm in module 'block1.fc' (node 'addmm') was set in forward with retain_grad()");
}

TEST(GradientHooks, AreFoundWhereAnInPlaceOpCameAfterThem) {
  EXPECT_SAYS(hook_refusal([](HookedBlock& m, at::Tensor x) {
                at::Tensor y = m.fc(x);
                y.register_hook(halve);
                return y.relu_();
              }),
              "the result of aten::addmm");
  EXPECT_SAYS(hook_refusal([](HookedBlock& m, at::Tensor x) {
                at::Tensor y = m.fc(x);
                y.retain_grad();
                return y.mul_(2);
              }),
              "the result of aten::");
}

TEST(GradientHooks, AreFoundInOneModeAlone) {
  EXPECT_SAYS(hook_refusal([](HookedBlock& m, at::Tensor x) {
                at::Tensor y = m.fc(x).sigmoid();
                if (m.is_training()) y.register_hook(halve);
                return y;
              }),
              "aten::sigmoid in module 'block1'");
}

TEST(GradientHooks, WithoutAGradientAreNoMatter) {
  HookedModel model([](HookedBlock& m, at::Tensor x) {
    m.fc(x).tanh().register_hook(halve);  // nobody reads it
    return m.fc(x);
  });
  check(model, {torch::randn({2, 4})});
}

TEST(GradientHooks, ThatForwardSetsOnParametersAreRefusedAndTakenBack) {
  HookedModel model([](HookedBlock& m, at::Tensor x) {
    m.fc->weight.register_hook(halve);
    return m.fc(x);
  });
  model.block->fc->weight.register_hook(halve);
  EXPECT_ERROR(ulp::capture(model, {torch::randn({2, 4})}), "a gradient hook on 'block1.fc.weight'");
  model.block->fc(torch::ones({1, 4})).sum().backward();
  EXPECT_TRUE(torch::equal(model.block->fc->weight.grad(), torch::full({4, 4}, 0.5)))
      << "halved by the hook from outside alone";
}

TEST(GradientHooks, OnParametersKeepWorking) {
  HookedModel model([](HookedBlock& m, at::Tensor x) { return m.fc(x).relu(); });
  int calls = 0;
  model.block->fc->weight.register_hook([&](const at::Tensor& gradient) {
    ++calls;
    return gradient * 3;
  });
  const auto module = ulp::capture(model, {torch::randn({2, 4})});
  EXPECT_EQ(calls, 0);
  const at::Tensor x = torch::randn({3, 4});
  module->forward(x).sum().backward();
  EXPECT_EQ(calls, 1);
  const at::Tensor of_graph = model.block->fc->weight.grad().clone();
  model.zero_grad();
  model.forward(x).sum().backward();
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(torch::equal(of_graph, model.block->fc->weight.grad()));
}

TEST(GradientHooks, OnResultsOfTheGraphKeepWorking) {
  HookedModel model([](HookedBlock& m, at::Tensor x) { return m.fc(x); });
  const auto module = ulp::capture(model, {torch::randn({2, 4})});
  const at::Tensor x = torch::randn({3, 4});
  at::Tensor y = module->forward(x);
  y.register_hook(halve);
  y.sum().backward();
  EXPECT_TRUE(torch::equal(model.head->bias.grad(), torch::full({2}, 1.5)));
}

}  // namespace
