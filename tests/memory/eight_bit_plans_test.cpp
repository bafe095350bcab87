// Layers of 8 bits under plans: the bits of the network without one, statistics of delayed scaling included.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "memory/plans.h"
#include "ulp/amp/fp8/to_fp8.h"
#include "ulp/amp/int8/to_int8.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/measure/memory_meter.h"

namespace {

using namespace ulp;
using graph::GraphModule;

struct DropNetImpl : torch::nn::Module {
  DropNetImpl() {
    first = register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).padding(1)));
    middle = register_module("middle", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 16, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(16));
    inner = register_module("inner", torch::nn::Linear(16, 32));
    wide = register_module("wide", torch::nn::Linear(32, 32));
    head = register_module("head", torch::nn::Linear(32, 4));
  }
  at::Tensor forward(at::Tensor x) {
    x = torch::relu(norm(middle(torch::relu(first(x))))).mean({2, 3});
    x = torch::dropout(torch::gelu(inner(x)), 0.25, is_training());
    return head(torch::tanh(wide(x)));
  }
  torch::nn::Conv2d first{nullptr}, middle{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear inner{nullptr}, wide{nullptr}, head{nullptr};
};
TORCH_MODULE(DropNet);

std::shared_ptr<GraphModule> drop_net() {
  torch::manual_seed(3);
  DropNet net;
  net->train();
  const auto module = capture(*net, {torch::randn({2, 3, 8, 8})});
  module->train();
  return module;
}

/// A step that rounds every weight anew: those of the step before would have noted their magnitudes already.
test::Traces fresh_step(GraphModule& module, const std::vector<torch::Tensor>& inputs, bool bf16) {
  {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : module.parameters()) parameter.mul_(1);
  }
  return test::step(module, inputs, bf16);
}

void expect_bits_of_a_step_without_plan(GraphModule& module, const std::string& name) {
  module.train();
  torch::manual_seed(4);
  const std::vector<torch::Tensor> inputs = {torch::randn({5, 3, 8, 8})};
  for (const bool bf16 : {false, true}) {
    memory::checkpoint(module, {});
    const auto expected = fresh_step(module, inputs, bf16);
    for (const int64_t calls : {1, 3, 5, 100}) {
      memory::checkpoint(module, memory::plan_every(module.graph(), calls));
      test::expect_same(expected, fresh_step(module, inputs, bf16),
                        name + ", segments of " + std::to_string(calls) + (bf16 ? " in bf16" : ""));
    }
    memory::checkpoint(module, test::nested(module.graph()));
    test::expect_same(expected, fresh_step(module, inputs, bf16), name + ", nested");
  }
}

TEST(EightBitPlans, EachFp8RecipeGivesTheBitsOfAStepWithoutPlan) {
  for (const char* name : {"fp8:delayed", "fp8:current", "fp8:rowwise", "fp8:block", "mxfp8", "nvfp4"}) {
    graph::PassReport report;
    const auto module = amp::to_fp8(drop_net(), amp::Fp8Recipe::named(name), &report);
    ASSERT_FALSE(report.changes.empty()) << name;
    expect_bits_of_a_step_without_plan(*module, name);
  }
}

TEST(EightBitPlans, Int8GivesTheBitsOfAStepWithoutPlan) {
  graph::PassReport report;
  const auto module = amp::to_int8(drop_net(), amp::Int8Recipe::named("int8"), &report);
  ASSERT_FALSE(report.changes.empty());
  expect_bits_of_a_step_without_plan(*module, "int8");
}

/// Bytes that a forward leaves for the backward.
int64_t kept_bytes(GraphModule& module, const torch::Tensor& input) {
  const measure::MemoryMeter meter;
  const torch::Tensor result = module.forward(input);
  return meter.live_bytes();
}

TEST(EightBitPlans, CodesOfLayersWithDelayedScalingAreFreed) {
  const auto module = amp::to_fp8(drop_net(), amp::Fp8Recipe::named("fp8:delayed"));
  module->train();
  const torch::Tensor input = torch::randn({64, 3, 8, 8});
  kept_bytes(*module, input);  // weights are rounded
  const int64_t all = kept_bytes(*module, input);
  memory::checkpoint(*module, memory::plan_every(module->graph(), 100));
  const int64_t none = kept_bytes(*module, input);
  memory::checkpoint(*module, memory::plan_every(module->graph(), 6));
  const int64_t some = kept_bytes(*module, input);
  EXPECT_GT(all, 64 * 16 * 8 * 8 * 4) << "a convolution's result at least";
  EXPECT_LT(some, all * 3 / 4);
  EXPECT_GT(none, 0);
}

}  // namespace
