// Optimizer steps on a GPU: kernels compiled at run time, LibTorch's fused optimizers, and whole training
// steps as CUDA graphs.
#include "amp/fused_support.h"
#include "amp/synchronizing_calls.h"
#include "cuda/support.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/optimizer/capturable_step.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/optimizer/graphed_step.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/libtorch/bit_mask.h"

namespace {

using namespace ulp::amp;
using ulp::test::bright_corners;
using ulp::test::Cuda;
using ulp::test::distance;
using ulp::test::SmallNet;
using ulp::test::SynchronizingCalls;

struct GpuStepCase {
  UpdateRule rule;
  at::ScalarType type = at::kFloat;
  MasterWeights masters = MasterWeights::fp32;
  MomentFormat moments = MomentFormat::fp32;
};

/// Weights after some steps with scaling, clipping, a mask and a skipped step.
test::Tensors weights_after_steps(const GpuStepCase& how, at::Device device, DeviceUpdate update,
                                  bool masked) {
  test::Tensors parameters;
  for (const at::Tensor& each : test::make_parameters(how.type))
    parameters.push_back(each.detach().to(device).requires_grad_());
  FusedOptimizer optimizer({FusedGroup{parameters, how.rule, how.masters, how.moments}}, 7,
                           {.update = update});
  GradScaler scaler({.init_scale = 1024, .growth_interval = 3});
  for (uint64_t step = 0; step < 6; ++step) {
    scaler.scale(torch::zeros({}, device));
    test::set_gradients(parameters, step, scaler.get_scale());
    if (step == 2) parameters[2].mutable_grad()[3] = INFINITY;
    if (step == 3 && masked)
      optimizer.set_mask(parameters[4], ulp::libtorch::pack_mask(torch::arange(16500).remainder(3).ne(0)));
    const FusedStepResult done = fused_step(optimizer, &scaler, {.max_norm = 20.0});
    EXPECT_EQ(done.result, step == 2 ? StepResult::skipped_nonfinite : StepResult::stepped) << step;
    scaler.update();
  }
  test::Tensors weights;
  for (const at::Tensor& each : parameters) weights.push_back(optimizer.master_weight(each).cpu());
  return weights;
}

TEST_F(Cuda, KernelsCompiledAtRunTimeGiveTheHostsBits) {
  std::vector<GpuStepCase> cases = {{SgdRule{.lr = 0.1, .momentum = 0.9, .dampening = 0.3}},
                                    {AdamRule{.lr = 0.01}},
                                    {AdamWRule{.lr = 0.01}, at::kHalf}};
  for (const auto& masters : ulp::EnumNames<MasterWeights>::list) {
    for (const auto& moments : ulp::EnumNames<MomentFormat>::list)
      cases.push_back({AdamWRule{.lr = 0.01}, at::kBFloat16, masters.value, moments.value});
  }
  for (const GpuStepCase& how : cases) {
    SCOPED_TRACE(std::string(name_of(how.rule)) + ' ' + to_string(how.masters) + ' ' +
                 to_string(how.moments));
    const auto expected = weights_after_steps(how, at::kCPU, DeviceUpdate::automatic, true),
               got = weights_after_steps(how, at::kCUDA, DeviceUpdate::kernels, true);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::equal(expected[i], got[i])) << i;
  }
}

TEST_F(Cuda, FusedOptimizersOfLibTorchGiveTheHostsWeights) {
  for (const DeviceUpdate update : {DeviceUpdate::fused_ops, DeviceUpdate::foreach_ops}) {
    for (const UpdateRule& rule :
         {UpdateRule(SgdRule{.lr = 0.1, .momentum = 0.9}), UpdateRule(AdamWRule{.lr = 0.01})}) {
      const auto expected = weights_after_steps({rule}, at::kCPU, DeviceUpdate::automatic, false),
                 got = weights_after_steps({rule}, at::kCUDA, update, false);
      for (size_t i = 0; i < got.size(); ++i)
        if (got[i].numel() != 0) EXPECT_LT(distance(expected[i], got[i]), 1e-5) << i;
    }
  }
}

TEST_F(Cuda, ACapturableStepWaitsForNothing) {
  SmallNet net;
  net->to(at::kCUDA);
  const auto [x, classes] = bright_corners();
  FusedOptimizer optimizer({FusedGroup{net->parameters(), AdamWRule{.lr = 0.01}}}, 0,
                           {.update = DeviceUpdate::kernels});
  GradScaler scaler({.init_scale = 1024});
  CapturableStep step(optimizer, &scaler, {.max_norm = 1.0});
  const SynchronizingCalls counter;
  for (int turn = 0; turn < 3; ++turn) {
    optimizer.zero_grad();
    step.scale(torch::cross_entropy_loss(net(x), classes)).backward();
    step.step();
  }
  EXPECT_EQ(counter.total(), 0);
  EXPECT_FALSE(step.read().skipped);
}

/// fp16 with loss scaling, one step of which overflows: the graph's weights are those of the steps one by
/// one.
TEST_F(Cuda, AGraphOfAWholeStepTrainsAsItsSteps) {
  const auto [x, classes] = bright_corners();
  const auto trained = [&](bool graphed) {
    torch::manual_seed(1);
    SmallNet net;
    const auto captured = ulp::capture(*net, {x.cpu()});
    captured->to(at::kCUDA);
    captured->train();
    FusedOptimizer optimizer({FusedGroup{captured->parameters(), AdamWRule{.lr = 0.01}}}, 0,
                             {.update = DeviceUpdate::kernels});
    GradScaler scaler({.init_scale = 1024, .growth_interval = 5});
    CapturableStep update(optimizer, &scaler, {.max_norm = 1.0});
    const auto loss = [&](const std::vector<at::Tensor>& inputs) {
      at::Tensor logits;
      {
        const Autocast guard(at::kCUDA, at::kHalf);
        logits = captured->forward(inputs[0]);
      }
      return torch::cross_entropy_loss(logits.to(at::kFloat), inputs[1]);
    };
    std::unique_ptr<GraphedStep> step;
    if (graphed) step = std::make_unique<GraphedStep>(optimizer, update, loss, 3);
    for (int number = 0; number < 12; ++number) {
      const at::Tensor input = number == 7 ? torch::full_like(x, INFINITY) : x + 0.01 * number;
      if (graphed) {
        step->run({input, classes});
      } else {
        optimizer.zero_grad();
        update.scale(loss({input, classes})).backward();
        update.step();
      }
      EXPECT_EQ(update.read().skipped, number == 7) << number;
    }
    update.finish();
    return std::pair(scaler.get_scale(), captured->named_parameters()["head.weight"].detach().cpu());
  };
  const auto expected = trained(false), got = trained(true);
  EXPECT_EQ(expected.first, got.first);
  EXPECT_LT(distance(expected.second, got.second), 1e-3);
}

TEST_F(Cuda, AStepThatCannotBeRecordedSaysSo) {
  torch::nn::Linear net(8, 8);
  net->to(at::kCUDA);
  FusedOptimizer optimizer({FusedGroup{net->parameters(), AdamWRule{}}}, 0,
                           {.update = DeviceUpdate::kernels});
  CapturableStep update(optimizer);
  GraphedStep step(
      optimizer, update,
      [&](const std::vector<at::Tensor>& inputs) {
        const at::Tensor loss = net(inputs[0]).square().mean();
        (void)loss.item<float>();  // waits for the device
        return loss;
      },
      1);
  const at::Tensor x = torch::randn({4, 8}, at::kCUDA);
  step.run({x});
  EXPECT_ANY_THROW(step.run({x}));
  EXPECT_FALSE(step.is_captured());
}

}  // namespace
