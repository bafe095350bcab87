// Checkpoints of optimizers whose state is on the parameters' device, with the CPU as the device.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "temp_folder.h"
#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/io/checkpoint.h"

namespace {

using ulp::amp::DeviceUpdate;
using ulp::amp::FusedGroup;
using ulp::amp::FusedOptimizer;

/// Weights in fp32 and, with masters, in bf16.
struct OnDevice : torch::nn::Module {
  explicit OnDevice(DeviceUpdate update)
      : wide(register_parameter("wide", torch::ones({17, 9}))),
        narrow(register_parameter("narrow", torch::ones({33}, torch::kBFloat16))),
        optimizer({FusedGroup{{wide, narrow}, ulp::amp::AdamWRule{.lr = 0.05}}}, 3, {.update = update}) {}

  void run_steps(int first, int last) {
    for (int step = first; step < last; ++step) {
      auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step));
      for (torch::Tensor weight : {wide, narrow})
        weight.mutable_grad() = torch::randn(weight.sizes(), generator).to(weight.scalar_type());
      optimizer.step();
    }
  }

  torch::Tensor wide, narrow;
  FusedOptimizer optimizer;
};

class CheckpointOnDevice : public TempFolder {
 protected:
  void save(const std::string& name, OnDevice& run) {
    ulp::io::save_checkpoint(at(name), {.model = &run, .optimizer = &run.optimizer});
  }
  void load(const std::string& name, OnDevice& run) {
    ulp::io::CheckpointParts parts{.model = &run, .optimizer = &run.optimizer};
    ulp::io::load_checkpoint(at(name), parts);
  }
};

TEST_F(CheckpointOnDevice, AResumedRunHasTheSameBytes) {
  for (const DeviceUpdate update : {DeviceUpdate::fused_ops, DeviceUpdate::foreach_ops}) {
    OnDevice whole(update), first(update), second(update);
    whole.run_steps(0, 6);
    first.run_steps(0, 3);
    save("half", first);
    load("half", second);
    second.run_steps(3, 6);
    save("whole", whole);
    save("resumed", second);
    EXPECT_EQ(read("whole"), read("resumed"));
  }
}

TEST_F(CheckpointOnDevice, AnotherWayToUpdateGoesOn) {
  constexpr DeviceUpdate kWays[] = {DeviceUpdate::automatic, DeviceUpdate::fused_ops,
                                    DeviceUpdate::foreach_ops};
  for (const DeviceUpdate before : kWays) {
    for (const DeviceUpdate after : kWays) {
      OnDevice whole(DeviceUpdate::automatic), first(before), second(after);
      whole.run_steps(0, 4);
      first.run_steps(0, 2);
      save("half", first);
      load("half", second);
      save("again", second);
      EXPECT_EQ(read("half"), read("again"));
      second.run_steps(2, 4);
      // Four steps of fewer than 16 roundings each, of weights below 2.
      EXPECT_LE((whole.wide - second.wide).abs().max().item<float>(), 4 * 16 * 0x1p-23F * 2);
      EXPECT_LE((whole.narrow - second.narrow).to(torch::kFloat).abs().max().item<float>(), 0x1p-7F * 2);
    }
  }
}

}  // namespace
