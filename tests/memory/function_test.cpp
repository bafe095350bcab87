// Checkpointing of functions: modules that are not captured.
#include "ulp/memory/checkpoint/function.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "memory/step.h"

namespace {

using ulp::memory::checkpoint;
using ulp::test::same_bits;

struct Block : torch::nn::Module {
  torch::nn::Linear wide{16, 64}, narrow{64, 16};
  torch::nn::Dropout dropout{0.3};
  int runs = 0;
  Block() {
    register_module("wide", wide);
    register_module("narrow", narrow);
    register_module("dropout", dropout);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    ++runs;
    return x + dropout(narrow(torch::gelu(wide(x)).tanh()));
  }
};

struct Result {
  torch::Tensor value;
  std::vector<torch::Tensor> gradients;
};

template <typename Forward>
Result run_blocks(const std::shared_ptr<Block>& block, const Forward& forward, bool bf16) {
  torch::manual_seed(3);
  torch::Tensor x = torch::randn({8, 16}, torch::requires_grad());
  block->zero_grad();
  Result result;
  {
    const ulp::amp::Autocast autocast(torch::kCPU, torch::kBFloat16, bf16);
    result.value = forward(x);
  }
  result.value.to(torch::kFloat).square().mean().backward();
  result.gradients.push_back(x.grad());
  for (const torch::Tensor& parameter : block->parameters())
    result.gradients.push_back(parameter.grad().clone());
  return result;
}

TEST(FunctionCheckpoint, GivesTheBitsOfTheFunction) {
  const auto block = std::make_shared<Block>();
  const auto whole = [&](const torch::Tensor& x) {
    return block->forward(block->forward(block->forward(x)));
  };
  const auto one = [&](const torch::Tensor& x) {
    return checkpoint([&](const torch::Tensor& y) { return block->forward(y); }, x);
  };
  const auto split = [&](const torch::Tensor& x) { return one(block->forward(one(x))); };
  const auto nested = [&](const torch::Tensor& x) {
    return checkpoint([&](const torch::Tensor& y) { return one(one(y)); }, block->forward(x));
  };
  const auto deep = [&](const torch::Tensor& x) {
    return checkpoint([&](const torch::Tensor& y) { return nested(y); }, x);
  };
  for (const bool bf16 : {false, true}) {
    const Result expected = run_blocks(block, whole, bf16);
    const std::vector<Result> found = {run_blocks(block, split, bf16), run_blocks(block, nested, bf16),
                                       run_blocks(block, deep, bf16)};
    for (const Result& result : found) {
      EXPECT_TRUE(same_bits(expected.value, result.value));
      for (size_t i = 0; i < expected.gradients.size(); ++i)
        EXPECT_TRUE(same_bits(expected.gradients[i], result.gradients[i])) << i;
    }
  }
}

// The guard is gone when the work is done again, its policy is not.
TEST(FunctionCheckpoint, WorkThatIsDoneAgainKeepsThePolicyOfItsAutocast) {
  const auto policy = ulp::amp::OpPolicy().set("aten::exp", ulp::amp::Cast::lower_precision);
  const auto gradient = [&](bool again) {
    const torch::Tensor x = torch::tensor({0.3F, 1.7F}).requires_grad_();
    const auto function = [](const torch::Tensor& y) { return y.exp().to(torch::kFloat) * 3; };
    torch::Tensor y;
    {
      const ulp::amp::Autocast guard(torch::kCPU, torch::kBFloat16, policy);
      y = again ? checkpoint(function, x) : function(x);
    }
    y.sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(torch::equal(gradient(true), gradient(false)));
  const torch::Tensor exact = torch::tensor({0.3F, 1.7F}).exp() * 3;
  EXPECT_FALSE(torch::equal(gradient(true), exact));
}

TEST(FunctionCheckpoint, RunsOnceWithoutGradAndTwiceWithIt) {
  const auto block = std::make_shared<Block>();
  const auto forward = [&](const torch::Tensor& y) { return block->forward(y); };
  {
    const torch::NoGradGuard no_grad;
    checkpoint(forward, torch::randn({2, 16}));
  }
  EXPECT_EQ(block->runs, 1);
  checkpoint(forward, torch::randn({2, 16})).sum().backward();
  EXPECT_EQ(block->runs, 3);
}

TEST(FunctionCheckpoint, KeepsTheGraphWhereItIsAskedTo) {
  torch::Tensor x = torch::randn({8}, torch::requires_grad());
  const torch::Tensor y = checkpoint([](const torch::Tensor& v) { return v.exp().sin().square(); }, x).sum();
  y.backward({}, /*retain_graph=*/true);
  const torch::Tensor first = x.grad().clone();
  y.backward();
  EXPECT_TRUE(same_bits(x.grad(), first * 2));
}

TEST(FunctionCheckpoint, GradientsOfGradientsFlow) {
  const auto second = [](const auto& function) {
    torch::Tensor x = torch::full({3}, 0.5, torch::kDouble).set_requires_grad(true);
    const torch::Tensor y = function(x).sum();
    const torch::Tensor gradient = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
    return torch::autograd::grad({gradient.square().sum()}, {x})[0];
  };
  const auto function = [](const torch::Tensor& v) { return v.exp().sin() * v; };
  EXPECT_TRUE(
      same_bits(second(function), second([&](const torch::Tensor& v) { return checkpoint(function, v); })));
}

TEST(FunctionCheckpoint, OtherWorkTheSecondTimeIsAnError) {
  int runs = 0;
  const auto shrinking = [&](const torch::Tensor& v) {
    return ++runs == 1 ? v.exp().sin() : v.slice(0, 0, 2).exp().sin();
  };
  EXPECT_ERROR(checkpoint(shrinking, torch::randn({4}, torch::requires_grad())).sum().backward(),
               "of sizes [4]");
  runs = 0;
  const auto idle = [&](const torch::Tensor& v) { return ++runs == 1 ? v.exp().sin() : v; };
  EXPECT_ERROR(checkpoint(idle, torch::randn({4}, torch::requires_grad())).sum().backward(), "less of it");
  runs = 0;
  const auto fails = [&](const torch::Tensor& v) {
    if (++runs == 2) ulp::fail("test", "expected one run, got two");
    return v.exp().sin();
  };
  EXPECT_ERROR(checkpoint(fails, torch::randn({4}, torch::requires_grad())).sum().backward(), "got two");
  // Nothing is left behind: the next one works.
  torch::Tensor x = torch::zeros({4}, torch::requires_grad());
  checkpoint([](const torch::Tensor& v) { return v.exp(); }, x).sum().backward();
  EXPECT_TRUE(x.grad().equal(torch::ones({4})));
}

/// Its backward pass runs `depth` more within each other.
struct Deep : torch::autograd::Function<Deep> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               int64_t depth) {
    context->saved_data["depth"] = depth;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const int64_t depth = context->saved_data["depth"].toInt();
    if (depth > 0) {
      const torch::AutoGradMode grad(true);
      Deep::apply(torch::ones({2}, torch::requires_grad()), depth - 1).sum().backward();
    }
    return {gradients[0], torch::Tensor()};
  }
};

TEST(FunctionCheckpoint, DeepBackwardPassesWithinEachOtherHaveTheirThreads) {
  torch::ones({2}, torch::requires_grad())
      .sum()
      .backward();  // by LibTorch's engine where this test runs alone
  torch::Tensor x = torch::ones({2}, torch::requires_grad());
  checkpoint([](const torch::Tensor& v) { return Deep::apply(v, 150); }, x).sum().backward();
  EXPECT_TRUE(x.grad().equal(torch::ones({2})));
}

TEST(FunctionCheckpoint, ParametersWrittenInBetweenAreAnError) {
  torch::Tensor weight = torch::randn({4}, torch::requires_grad());
  const torch::Tensor y = checkpoint([&](const torch::Tensor& v) { return v * weight; },
                                     torch::randn({4}, torch::requires_grad()));
  {
    const torch::NoGradGuard no_grad;
    weight.add_(1);
  }
  EXPECT_ERROR(y.sum().backward(), "written to");
}

}  // namespace
