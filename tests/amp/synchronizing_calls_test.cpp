// How often a training step makes the host wait for the device, counted on the processor.
#include "synchronizing_calls.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "device_kernels.h"
#include "fused_support.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/optimizer/capturable_step.h"
#include "ulp/amp/optimizer/fused_step.h"

namespace ulp::amp::test {
namespace {

using ulp::test::SynchronizingCalls;

struct CountedNet {
  torch::nn::Linear first{16, 32}, second{32, 4};
  at::Tensor x = torch::randn({8, 16}), classes = torch::arange(8) % 4;
  Tensors parameters() const { return {first->weight, first->bias, second->weight, second->bias}; }
  at::Tensor loss() {
    const Autocast guard(at::kCPU, at::kBFloat16);
    return torch::cross_entropy_loss(second(torch::relu(first(x))).to(at::kFloat), classes);
  }
};

TEST(SynchronizingCalls, AreSeenByTheObserver) {
  const at::Tensor one = torch::ones({3});
  const SynchronizingCalls counter;
  (void)one.sum();
  EXPECT_EQ(counter.total(), 0);
  (void)one.sum().item<float>();
  (void)one.equal(one);
  EXPECT_EQ(counter.total(), 2);
}

/// PyTorch's GradScaler reads one value a device and step for an optimizer that knows nothing of scaling.
TEST(SynchronizingCalls, AreOneAStepOfTheScalerWithLibTorchsOptimizer) {
  CountedNet net;
  torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(0.01));
  GradScaler scaler({.init_scale = 64});
  for (const bool clipped : {false, true}) {
    optimizer.zero_grad();
    const SynchronizingCalls counter;
    scaler.scale(net.loss()).backward();
    if (clipped) scaler.unscale_(optimizer);
    scaler.step(optimizer);
    scaler.update();
    EXPECT_EQ(counter.total(), 1) << clipped;
  }
}

/// Synchronizing calls by the way of the update: one a step with a scaler, clipping or both, else none.
TEST(SynchronizingCalls, AreAtMostOneAFusedStep) {
  const WithCpuKernels with;
  for (const DeviceUpdate update :
       {DeviceUpdate::automatic, DeviceUpdate::kernels, DeviceUpdate::fused_ops, DeviceUpdate::foreach_ops}) {
    CountedNet net;
    FusedOptimizer optimizer({FusedGroup{net.parameters(), AdamWRule{.lr = 0.01}}}, 0, {.update = update});
    GradScaler scaler({.init_scale = 64});
    const bool on_host = update == DeviceUpdate::automatic;
    const auto step = [&](GradScaler* scaling, std::optional<double> max_norm, bool overflows) {
      optimizer.zero_grad();
      const SynchronizingCalls counter;
      const at::Tensor loss = net.loss();
      (scaling != nullptr ? scaling->scale(loss) : loss).backward();
      if (overflows) net.first->weight.mutable_grad().fill_(INFINITY);
      fused_step(optimizer, scaling, {.max_norm = max_norm});
      if (scaling != nullptr) scaling->update();
      return counter.total();
    };
    for (int turn = 0; turn < 2; ++turn) {  // state is made in the first one
      EXPECT_EQ(step(nullptr, std::nullopt, false), 0) << static_cast<int>(update);
      EXPECT_EQ(step(&scaler, std::nullopt, false), on_host ? 0 : 1) << static_cast<int>(update);
      EXPECT_EQ(step(&scaler, 1.0, false), on_host ? 0 : 1) << static_cast<int>(update);
      EXPECT_EQ(step(&scaler, 1.0, true), on_host ? 0 : 1) << static_cast<int>(update);
    }
  }
}

TEST(SynchronizingCalls, AreNoneInACapturableStep) {
  const WithCpuKernels with;
  CountedNet net;
  FusedOptimizer optimizer({FusedGroup{net.parameters(), AdamWRule{.lr = 0.01}, {}, MomentFormat::bf16}}, 0,
                           {.update = DeviceUpdate::kernels});
  GradScaler scaler({.init_scale = 64});
  CapturableStep step(optimizer, &scaler, {.max_norm = 1.0});
  const SynchronizingCalls counter;
  for (int turn = 0; turn < 3; ++turn) {
    optimizer.zero_grad();
    step.scale(net.loss()).backward();
    if (turn == 1) net.first->weight.mutable_grad().fill_(NAN);
    step.step();
  }
  EXPECT_EQ(counter.total(), 0);
  step.finish();
  EXPECT_EQ(scaler.get_scale(), 32);
}

}  // namespace
}  // namespace ulp::amp::test
