// Steps whose verdict stays on the device, and training steps as one graph, with the CPU as the device.
#include "constants.h"
#include "device_kernels.h"
#include "fused_support.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/optimizer/graphed_step.h"
#include "ulp/amp/scaling/make_scaler.h"

namespace ulp::amp::test {
namespace {

class CapturableTest : public ::testing::Test {
 protected:
  static FusedOptimizer make(const Tensors& parameters, const UpdateRule& rule, DeviceUpdate update) {
    return FusedOptimizer({FusedGroup{parameters, rule, MasterWeights::split, MomentFormat::int8}}, 7,
                          {.update = update});
  }
  WithCpuKernels with_;
};

const UpdateRule kCapturableRules[] = {SgdRule{.lr = 0.1, .momentum = 0.9, .dampening = 0.3},
                                       AdamRule{.lr = 0.01, .weight_decay = 0.1}, AdamWRule{.lr = 0.01}};

TEST_F(CapturableTest, StepsHaveTheBitsOfFusedStepAndTheScalersUpdates) {
  for (const UpdateRule& rule : kCapturableRules) {
    for (const char* dialect : {"pytorch", "keras", "static:64"}) {
      SCOPED_TRACE(std::string(name_of(rule)) + ' ' + dialect);
      const Tensors expected = make_parameters(at::kBFloat16), got = make_parameters(at::kBFloat16);
      FusedOptimizer host = make(expected, rule, DeviceUpdate::automatic),
                     there = make(got, rule, DeviceUpdate::kernels);
      const bool fixed = std::string(dialect).starts_with("static");
      const ScalerOverrides overrides = fixed ? ScalerOverrides{} : ScalerOverrides{1024.0, 3};
      GradScaler host_scaler = make_scaler(dialect, overrides), scaler = make_scaler(dialect, overrides);
      CapturableStep step(there, &scaler, {.max_norm = 20.0});
      for (uint64_t number = 0; number < 12; ++number) {
        if (number == 9) {  // in between, the host takes over and gives back
          step.finish();
          EXPECT_EQ(scaler.state_dict(), host_scaler.state_dict());
        }
        EXPECT_EQ(step.scale(torch::ones({})).item<double>(),
                  host_scaler.scale(torch::ones({})).item<double>());
        for (const Tensors* parameters : {&expected, &got}) {
          set_gradients(*parameters, number, host_scaler.get_scale());
          if (number == 0 || number == 5) parameters->at(2).mutable_grad()[3] = number == 0 ? kInf : NAN;
        }
        if (number == 6) {
          for (FusedOptimizer* optimizer : {&host, &there})
            static_cast<FusedOptions&>(optimizer->param_groups()[0].options()).set_lr(0.003);
        }
        const FusedStepResult done = fused_step(host, &host_scaler, {.max_norm = 20.0});
        host_scaler.update();
        step.step();
        const CapturableState state = step.read();
        EXPECT_EQ(state.skipped, is_skipped(done.result)) << number;
        EXPECT_EQ(state.scale, host_scaler.get_scale()) << number;
        if (!state.skipped) EXPECT_EQ(state.grad_norm, done.grad_norm) << number;
      }
      step.finish();
      EXPECT_EQ(scaler.state_dict(), host_scaler.state_dict());
      for (size_t i = 0; i + 1 < got.size(); ++i) {
        EXPECT_TRUE(torch::equal(expected[i], got[i])) << i;
        EXPECT_EQ(state_of(host, expected[i]).step, state_of(there, got[i]).step) << i;
        EXPECT_TRUE(torch::equal(host.master_weight(expected[i]), there.master_weight(got[i]))) << i;
      }
    }
  }
}

TEST_F(CapturableTest, AMomentumBufferThatOnlySkippedStepsSawIsNew) {
  const UpdateRule rule = SgdRule{.lr = 0.1, .momentum = 0.9, .dampening = 0.5};
  const Tensors expected = make_parameters(at::kBFloat16), got = make_parameters(at::kBFloat16);
  FusedOptimizer host = make(expected, rule, DeviceUpdate::automatic),
                 there = make(got, rule, DeviceUpdate::kernels);
  CapturableStep step(there, nullptr, {.check_finite = true});
  set_gradients(got, 1);
  got[0].mutable_grad().fill_(kInf);
  step.step();
  EXPECT_TRUE(step.read().found_inf);
  step.finish();
  set_gradients(expected, 2);
  set_gradients(got, 2);
  host.step();
  there.step();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::equal(expected[i], got[i])) << i;
}

TEST_F(CapturableTest, ScalesWithoutAnInverseSkipAsOnTheHost) {
  const Tensors parameters = make_parameters(at::kBFloat16), before = copies(parameters);
  FusedOptimizer optimizer = make(parameters, AdamWRule{}, DeviceUpdate::kernels);
  GradScaler scaler({.init_scale = 0x1p-130});
  CapturableStep step(optimizer, &scaler);
  set_gradients(parameters, 1);
  step.step();
  EXPECT_TRUE(step.read().skipped);
  EXPECT_FALSE(step.read().found_inf);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(before[i], parameters[i])) << i;
}

TEST_F(CapturableTest, WhatTheDeviceCannotDecideIsRefused) {
  const Tensors parameters = make_parameters();
  FusedOptimizer host(parameters, AdamWRule{}),
      there({FusedGroup{parameters, AdamWRule{}}}, 0, {.update = DeviceUpdate::kernels});
  EXPECT_ERROR(CapturableStep{host}, "DeviceUpdate::kernels");
  for (const char* dialect : {"keras2", "apex", "deepspeed"}) {
    GradScaler scaler = make_scaler(dialect);
    EXPECT_ERROR(CapturableStep(there, &scaler), dialect);
  }
  EXPECT_ERROR(CapturableStep(there, nullptr, {.max_norm = 0.0}), "max_norm > 0");
  CapturableStep step(there);
  EXPECT_ERROR(step.begin_capture(), "a step before");
  EXPECT_ERROR(step.end_capture(), "begin_capture");
  set_gradients(parameters, 1);
  step.step();
  parameters[0].mutable_grad().reset();
  EXPECT_ERROR(step.step(), "parameters of the first step");
  EXPECT_ERROR(make_cuda_graph(at::kCPU), "CUDA");
}

// ---- a whole step as a graph: one that keeps the work and does it when it is replayed -------------------

struct FakeGraph : GraphRecorder {
  explicit FakeGraph(std::vector<std::string>& its_calls) : calls(its_calls) {}
  void capture(const std::function<void()>& its_work) override {
    calls.emplace_back("capture");
    if (fails) throw std::runtime_error("a step that cannot be recorded");
    work = its_work;
  }
  void replay() override {
    calls.emplace_back("replay");
    work();
  }
  std::vector<std::string>& calls;
  std::function<void()> work;
  bool fails = false;
};

struct GraphedNet {
  GraphedNet() {
    torch::manual_seed(3);
    net = torch::nn::Linear(12, 5);
    optimizer =
        std::make_unique<FusedOptimizer>(std::vector<FusedGroup>{{net->parameters(), AdamWRule{.lr = 0.05}}},
                                         0, OffloadOptions{.update = DeviceUpdate::kernels});
  }
  at::Tensor loss(const std::vector<at::Tensor>& inputs) {
    return torch::mse_loss(net(inputs[0]), inputs[1]);
  }
  torch::nn::Linear net{nullptr};
  std::unique_ptr<FusedOptimizer> optimizer;
};

TEST_F(CapturableTest, AGraphTrainsAsItsSteps) {
  std::vector<std::string> calls;
  GraphedNet plain, graphed;
  GradScaler plain_scaler({.init_scale = 64, .growth_interval = 3}),
      scaler({.init_scale = 64, .growth_interval = 3});
  CapturableStep update(*graphed.optimizer, &scaler, {.max_norm = 0.5});
  GraphedStep step(
      *graphed.optimizer, update, [&](const auto& inputs) { return graphed.loss(inputs); }, 2,
      std::make_unique<FakeGraph>(calls));
  for (int number = 0; number < 8; ++number) {
    const at::Tensor x = torch::randn({4, 12}),
                     y = number == 5 ? torch::full({4, 5}, kInf) : torch::randn({4, 5});
    plain.optimizer->zero_grad();
    const at::Tensor expected = plain.loss({x, y});
    plain_scaler.scale(expected).backward();
    fused_step(*plain.optimizer, &plain_scaler, {.max_norm = 0.5});
    plain_scaler.update();
    if (number > 2) graphed.optimizer->zero_grad();  // the fake makes its gradients anew
    EXPECT_TRUE(torch::equal(step.run({x, y}), expected.detach())) << number;
    EXPECT_EQ(step.is_captured(), number >= 2);
  }
  update.finish();
  EXPECT_EQ(scaler.state_dict(), plain_scaler.state_dict());
  EXPECT_TRUE(torch::equal(plain.net->weight, graphed.net->weight));
  EXPECT_EQ(calls, (std::vector<std::string>{"capture", "replay", "replay", "replay", "replay", "replay",
                                             "replay"}));
}

TEST_F(CapturableTest, GraphsHaveTheShapesOfTheirFirstStep) {
  std::vector<std::string> calls;
  GraphedNet net;
  CapturableStep update(*net.optimizer);
  auto graph = std::make_unique<FakeGraph>(calls);
  graph->fails = true;
  GraphedStep step(
      *net.optimizer, update, [&](const auto& inputs) { return net.loss(inputs); }, 1, std::move(graph));
  step.run({torch::randn({4, 12}), torch::randn({4, 5})});
  EXPECT_ERROR(step.run({torch::randn({3, 12}), torch::randn({3, 5})}), "as in the first step");
  EXPECT_ERROR(step.run({torch::randn({4, 12})}), "2 inputs");
  EXPECT_ERROR(step.run({torch::randn({4, 12}, at::kDouble), torch::randn({4, 5})}), "input 0");
  EXPECT_THROW(step.run({torch::randn({4, 12}), torch::randn({4, 5})}), std::runtime_error);
  EXPECT_FALSE(step.is_captured());
  EXPECT_ERROR(GraphedStep(*net.optimizer, update, {}, 0, std::make_unique<FakeGraph>(calls)), "warm-up");
}

/// Kernels that are recorded read the addresses that end_capture() brings.
TEST_F(CapturableTest, RecordedKernelsReadWhatIsBoundLater) {
  const Tensors expected = make_parameters(at::kBFloat16), got = make_parameters(at::kBFloat16);
  FusedOptimizer host = make(expected, AdamWRule{}, DeviceUpdate::automatic),
                 there = make(got, AdamWRule{}, DeviceUpdate::kernels);
  CapturableStep step(there);
  for (const Tensors* parameters : {&expected, &got}) set_gradients(*parameters, 1);
  host.step();
  step.step();
  for (const Tensors* parameters : {&expected, &got}) set_gradients(*parameters, 2);
  step.begin_capture();
  with_.kernels->hold = true;
  step.step();
  with_.kernels->hold = false;
  step.end_capture();
  for (int replay = 0; replay < 2; ++replay) {
    host.step();
    with_.kernels->run_held();
  }
  step.finish();
  for (size_t i = 0; i + 1 < got.size(); ++i) {
    EXPECT_TRUE(torch::equal(expected[i], got[i])) << i;
    EXPECT_EQ(state_of(there, got[i]).step, 3);
  }
}

}  // namespace
}  // namespace ulp::amp::test
