// A compiled step allocates nothing and calls no operator of LibTorch after the first: counts every allocation of the process
// by standing in for malloc and its relatives.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <atomic>

#include "counted_allocations.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/runtime/engine/piece_hook.h"
#include "ulp/train/compile/compiled_step.h"

namespace ulp::train {
namespace {

namespace nn = torch::nn;

std::atomic<int64_t> operators{0};

std::unique_ptr<at::ObserverContext> count_operator(const at::RecordFunction&) {
  operators.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

template <typename Step>
void expect_quiet(const Step& step) {
  step();
  const at::CallbackHandle handle = at::addGlobalCallback(at::RecordFunctionCallback(count_operator));
  torch::ones({2}).add_(1);
  EXPECT_GT(operators, 0) << "operators are counted";
  operators = 0;
  allocations = allocated = 0;
  counting = true;
  for (int i = 0; i < 50; ++i) step();
  counting = false;
  at::removeCallback(handle);
  EXPECT_EQ(allocations, 0) << "of " << allocated << " bytes";
  EXPECT_EQ(operators, 0);
}

TEST(CompiledStepAlloc, CountsAllocations) {
  counting = true;
  allocations = 0;
  const at::Tensor made = torch::empty({1000});
  counting = false;
  EXPECT_GT(allocations, 0);
}

TEST(CompiledStepAlloc, NothingAfterTheFirstStep) {
  torch::manual_seed(1);
  nn::Sequential model(nn::Linear(8, 32), nn::LayerNorm(nn::LayerNormOptions({32})), nn::GELU(),
                       nn::Linear(32, 32), nn::ReLU(), nn::Linear(32, 4));
  const std::vector<amp::UpdateRule> rules = {
      amp::AdamRule{}, amp::AdamWRule{}, amp::SgdRule{.momentum = 0.9, .nesterov = true}, amp::SgdRule{}};
  for (const amp::UpdateRule& rule : rules) {
    SCOPED_TRACE(amp::name_of(rule));
    const auto graph = capture(model, {torch::randn({16, 8})});
    graph->train();
    amp::FusedOptimizer optimizer(graph->parameters(), rule);
    CompiledStep step = compile(graph, LossFunction::cross_entropy(), optimizer, {.max_norm = 1.0});
    const at::Tensor x = torch::randn({16, 8}), y = torch::randint(4, {16}, at::kLong);
    std::array<float, 64> result{};
    expect_quiet([&] {
      for (const int64_t batch : {16, 1, 7}) {
        step.step(x.const_data_ptr<float>(), y.const_data_ptr<int64_t>(), batch);
        step.forward(x.const_data_ptr<float>(), batch, result.data());
      }
    });
    optimizer.param_groups()[0].options().set_lr(1e-4);  // a schedule allocates nothing, either
    expect_quiet([&] { step.step(x.const_data_ptr<float>(), y.const_data_ptr<int64_t>(), 16); });
    const std::vector<at::Tensor> inputs = {x};
    expect_quiet([&] { step.step(inputs, y); });
  }
}

TEST(CompiledStepAlloc, NothingOnSeveralThreads) {
  torch::manual_seed(3);
  nn::Sequential model(nn::Linear(100, 300), nn::LayerNorm(nn::LayerNormOptions({300})), nn::GELU(),
                       nn::Linear(300, 260), nn::ReLU(), nn::Linear(260, 4));
  const auto graph = capture(model, {torch::randn({16, 100})});
  graph->train();
  amp::FusedOptimizer optimizer(graph->parameters(), amp::AdamRule{});
  CompiledStep step =
      compile(graph, LossFunction::cross_entropy(), optimizer, {.max_norm = 1.0, .threads = 3});
  const at::Tensor x = torch::randn({400, 100}), y = torch::randint(4, {400}, at::kLong);
  std::atomic<int> pieces = 0;
  static std::atomic<int>* counted = &pieces;
  runtime::set_piece_hook([] { ++*counted; });
  expect_quiet([&] {
    for (const int64_t batch : {400, 300})
      step.step(x.const_data_ptr<float>(), y.const_data_ptr<int64_t>(), batch);
  });
  runtime::set_piece_hook(nullptr);
  EXPECT_GT(pieces, 100) << "instructions are cut";
}

TEST(CompiledStepAlloc, NothingForConvolutionsAndBatchNorm) {
  torch::manual_seed(3);
  nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1).bias(false)), nn::BatchNorm2d(8),
                       nn::ReLU(), nn::Conv2d(nn::Conv2dOptions(8, 8, 3).groups(8).stride(2)),
                       nn::MaxPool2d(2), nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(8, 4));
  const at::Tensor x = torch::randn({6, 3, 12, 11}), y = torch::randint(4, {6}, at::kLong);
  const auto graph = capture(model, {x});
  graph->train();
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.momentum = 0.9});
  for (const int threads : {1, 2}) {
    CompiledStep step = compile(graph, LossFunction::cross_entropy(), optimizer, {.threads = threads});
    std::array<float, 64> result{};
    expect_quiet([&] {
      for (const int64_t batch : {6, 2, 3}) {
        step.step(x.const_data_ptr<float>(), y.const_data_ptr<int64_t>(), batch);
        step.forward(x.const_data_ptr<float>(), batch, result.data());
      }
    });
  }
}

TEST(CompiledStepAlloc, NothingWithWeightsOfRows) {
  torch::manual_seed(2);
  nn::Sequential model(nn::Linear(8, 16), nn::Tanh(), nn::Linear(16, 4));
  const auto graph = capture(model, {torch::randn({16, 8})});
  amp::FusedOptimizer optimizer(graph->parameters(), amp::AdamRule{});
  CompiledStep step = compile(graph, LossFunction::weighted_cross_entropy(), optimizer);
  const std::vector<at::Tensor> inputs = {torch::randn({16, 8})};
  const at::Tensor actions = torch::randint(4, {16}, at::kLong), advantages = torch::randn({16});
  // LibTorch's graph leaves nodes beside the parameters, which the step looks at for hooks.
  graph->forward(inputs[0]).sum().backward();
  expect_quiet([&] { step.step(inputs, actions, advantages); });
}

}  // namespace
}  // namespace ulp::train
