// Steps that the parameters' device makes itself, with the CPU as the device: kernels give the host's bits,
// LibTorch's operators what rounding leaves of them.
#include "constants.h"
#include "device_kernels.h"
#include "fused_support.h"
#include "ulp/amp/optimizer/block_moments.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/libtorch/bit_mask.h"

namespace ulp::amp::test {
namespace {

struct DeviceCase {
  UpdateRule rule;
  at::ScalarType type = at::kFloat;
  MasterWeights masters = MasterWeights::fp32;
  MomentFormat moments = MomentFormat::fp32;
};

std::string text_of(const DeviceCase& how) {
  return std::string(name_of(how.rule)) + ' ' + c10::toString(how.type) + ' ' + to_string(how.masters) + ' ' +
         to_string(how.moments);
}

FusedOptimizer optimizer_of(const Tensors& parameters, const DeviceCase& how, DeviceUpdate update) {
  return FusedOptimizer({FusedGroup{parameters, how.rule, how.masters, how.moments}}, 7, {.update = update});
}

/// The parameters of a training run, and all that is beside them.
struct DeviceRun {
  Tensors parameters, states;
  std::vector<FusedStepResult> steps;
};

/// Some steps with scaling and clipping, one of them skipped, one after a mask was set where `masked` says
/// so.
DeviceRun device_run(const DeviceCase& how, DeviceUpdate update, bool masked) {
  DeviceRun run{make_parameters(how.type), {}, {}};
  FusedOptimizer optimizer = optimizer_of(run.parameters, how, update);
  GradScaler scaler({.init_scale = 1000.0, .growth_interval = 3});
  scaler.scale(torch::zeros({}));
  const at::Tensor keep = torch::arange(16500).remainder(3).ne(0);
  for (uint64_t step = 0; step < 6; ++step) {
    set_gradients(run.parameters, step, scaler.get_scale());
    if (step == 2) run.parameters[2].mutable_grad()[3] = kInf;
    if (step == 3 && masked) optimizer.set_mask(run.parameters[4], libtorch::pack_mask(keep));
    if (step == 4)
      std::visit([](auto& rule) { rule.lr /= 2; },
                 static_cast<FusedOptions&>(optimizer.param_groups()[0].options()).rule);
    run.steps.push_back(fused_step(optimizer, &scaler, {.max_norm = 20.0}));
    scaler.update();
  }
  for (const at::Tensor& parameter : run.parameters) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    auto& state = static_cast<FusedParamState&>(*found->second);
    run.states.push_back(torch::tensor(state.step));
    for_each_moment(state, [&](const MomentTensors& moment) {
      if (moment.values.defined()) run.states.push_back(moment.values);
      if (moment.absmax.defined()) run.states.push_back(moment.absmax);
    });
    if (state.master.defined()) run.states.push_back(state.master);
  }
  return run;
}

void expect_same_steps(const DeviceRun& expected, const DeviceRun& got) {
  ASSERT_EQ(expected.steps.size(), got.steps.size());
  for (size_t i = 0; i < got.steps.size(); ++i) {
    EXPECT_EQ(expected.steps[i].result, got.steps[i].result) << i;
    if (expected.steps[i].result != StepResult::stepped) continue;
    EXPECT_NEAR(expected.steps[i].grad_norm, got.steps[i].grad_norm, 1e-12 * expected.steps[i].grad_norm)
        << i;
  }
}

const UpdateRule kDeviceRules[] = {SgdRule{.lr = 0.1, .weight_decay = 0.01},
                                   SgdRule{.lr = 0.1, .momentum = 0.9, .dampening = 0.3},
                                   SgdRule{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
                                   AdamRule{.lr = 0.01, .weight_decay = 0.1}, AdamWRule{.lr = 0.01}};

TEST(DeviceUpdate, KernelsGiveTheHostsBits) {
  const WithCpuKernels with;
  std::vector<DeviceCase> cases;
  for (const UpdateRule& rule : kDeviceRules) cases.push_back({rule});
  for (const auto& masters : EnumNames<MasterWeights>::list) {
    for (const auto& moments : EnumNames<MomentFormat>::list)
      cases.push_back({AdamWRule{.lr = 0.01}, at::kBFloat16, masters.value, moments.value});
  }
  for (const auto& moments : EnumNames<MomentFormat>::list) {
    cases.push_back({AdamRule{.lr = 0.01}, at::kHalf, MasterWeights::fp32, moments.value});
    cases.push_back({SgdRule{.lr = 0.1, .momentum = 0.9}, at::kFloat, MasterWeights::fp32, moments.value});
  }
  for (const DeviceCase& how : cases) {
    SCOPED_TRACE(text_of(how));
    const DeviceRun expected = device_run(how, DeviceUpdate::automatic, true),
                    got = device_run(how, DeviceUpdate::kernels, true);
    expect_same_steps(expected, got);
    for (size_t i = 0; i < got.parameters.size(); ++i)
      EXPECT_TRUE(torch::equal(expected.parameters[i], got.parameters[i])) << i;
    ASSERT_EQ(expected.states.size(), got.states.size());
    for (size_t i = 0; i < got.states.size(); ++i)
      EXPECT_TRUE(torch::equal(expected.states[i], got.states[i])) << i;
  }
  EXPECT_GT(with.kernels->launches["ulp_update"], 0);
}

TEST(DeviceUpdate, LibTorchsOperatorsDifferByRoundingAlone) {
  std::vector<DeviceCase> cases;
  for (const UpdateRule& rule : kDeviceRules) cases.push_back({rule});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) cases.push_back({AdamWRule{.lr = 0.01}, type});
  for (const DeviceUpdate update : {DeviceUpdate::fused_ops, DeviceUpdate::foreach_ops}) {
    for (const DeviceCase& how : cases) {
      SCOPED_TRACE(text_of(how) + (update == DeviceUpdate::fused_ops ? " fused" : " foreach"));
      const DeviceRun expected = device_run(how, DeviceUpdate::automatic, false),
                      got = device_run(how, update, false);
      expect_same_steps(expected, got);
      // A step has fewer than 16 roundings; weights are below 8, an update is below 4 in these rules.
      const double steps = 5, eps = how.type == at::kFloat  ? 0x1p-23
                                    : how.type == at::kHalf ? 0x1p-10
                                                            : 0x1p-7;
      const double bound = how.type == at::kFloat ? steps * 16 * eps * 8 : eps * 8;
      for (size_t i = 0; i < got.parameters.size(); ++i) {
        const at::Tensor a = expected.parameters[i].detach().to(at::kDouble),
                         b = got.parameters[i].detach().to(at::kDouble);
        if (a.numel() != 0) EXPECT_LE((a - b).abs().max().item<double>(), bound) << i;
      }
    }
  }
}

TEST(DeviceUpdate, StepCountersAreTheHosts) {
  const WithCpuKernels with;
  for (const DeviceUpdate update :
       {DeviceUpdate::kernels, DeviceUpdate::fused_ops, DeviceUpdate::foreach_ops}) {
    const Tensors parameters = make_parameters();
    FusedOptimizer optimizer = optimizer_of(parameters, {AdamWRule{}}, update);
    set_gradients(parameters, 1);
    optimizer.step();
    parameters[0].mutable_grad().reset();
    optimizer.step();
    EXPECT_EQ(state_of(optimizer, parameters[0]).step, 1);
    EXPECT_EQ(state_of(optimizer, parameters[1]).step, 2);
  }
}

TEST(DeviceUpdate, ASkippedStepLeavesEverythingAsItWas) {
  const WithCpuKernels with;
  for (const DeviceUpdate update :
       {DeviceUpdate::kernels, DeviceUpdate::fused_ops, DeviceUpdate::foreach_ops}) {
    const Tensors parameters = make_parameters();
    FusedOptimizer optimizer = optimizer_of(parameters, {AdamWRule{}}, update);
    set_gradients(parameters, 1);
    optimizer.step();
    const Tensors before = copies(parameters);
    const at::Tensor moment = state_of(optimizer, parameters[4]).exp_avg.clone();
    parameters[4].mutable_grad()[7] = NAN;
    EXPECT_EQ(fused_step(optimizer, nullptr, {.check_finite = true}).result, StepResult::skipped_nonfinite);
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(before[i], parameters[i])) << i;
    EXPECT_TRUE(torch::equal(moment, state_of(optimizer, parameters[4]).exp_avg));
    EXPECT_EQ(state_of(optimizer, parameters[4]).step, 1);
  }
}

TEST(DeviceUpdate, WhatAWayLacksIsRefused) {
  const Tensors parameters = make_parameters(at::kBFloat16), wide = make_parameters();
  for (const DeviceUpdate update : {DeviceUpdate::fused_ops, DeviceUpdate::foreach_ops}) {
    EXPECT_ERROR(optimizer_of(parameters, {AdamWRule{}, {}, MasterWeights::split}, update), "fp32 masters");
    EXPECT_ERROR(optimizer_of(wide, {AdamWRule{}, {}, {}, MomentFormat::int8}, update), "fp32 moments");
    EXPECT_ERROR(optimizer_of(wide, {AdamWRule{}, {}, {}, MomentFormat::bf16}, update), "fp32 moments");
    FusedOptimizer masked = optimizer_of(wide, {AdamWRule{}}, update);
    masked.set_mask(wide[1], libtorch::pack_mask(torch::arange(21).ne(4)));
    set_gradients(wide, 1);
    EXPECT_ERROR(masked.step(), "no mask");
  }
  EXPECT_ERROR(optimizer_of(wide, {AdamWRule{}}, DeviceUpdate::kernels), "CUDA parameters");
  EXPECT_ERROR(FusedOptimizer({FusedGroup{wide, AdamWRule{}}}, 0,
                              {.to_host = true, .update = DeviceUpdate::fused_ops}),
               "got both");
  EXPECT_ERROR(FusedOptimizer({FusedGroup{wide, AdamWRule{}}}, 0,
                              {.state_folder = "/", .update = DeviceUpdate::fused_ops}),
               "state_folder");
}

/// On `meta`, where a tensor of another device ends in an error of LibTorch.
TEST(DeviceUpdate, StateIsWhereItsParameterIs) {
  for (const UpdateRule& rule : kDeviceRules) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      Tensors parameters;
      for (const at::Tensor& each : make_parameters(type))
        parameters.push_back(each.detach().to(at::kMeta).requires_grad_());
      for (at::Tensor& each : parameters) each.mutable_grad() = at::empty_like(each.detach());
      FusedOptimizer optimizer(parameters, rule);
      for (int step = 0; step < 2; ++step) optimizer.step();
      for (const auto& entry : optimizer.state()) {
        auto& state = static_cast<FusedParamState&>(*entry.second);
        EXPECT_EQ(state.step, 2);
        if (state.master.defined()) EXPECT_TRUE(state.master.is_meta());
        for_each_moment(state, [&](const MomentTensors& moment) {
          if (moment.values.defined()) EXPECT_TRUE(moment.values.is_meta());
        });
      }
    }
  }
}

TEST(DeviceUpdate, WithoutTheLibrariesOfCudaWhatIsMissingIsNamed) {
  EXPECT_ERROR(make_cuda_launcher(at::Device(at::kCUDA, 0), {.driver = "libno_driver.so"}),
               "libno_driver.so");
  EXPECT_ERROR(compile_update_kernels("libno_nvrtc.so", 90), "expected NVRTC");
}

TEST(DeviceUpdate, NvrtcCompilesTheKernelsWhereItIsThere) {
  std::string code;
  try {
    code = compile_update_kernels("", 90);
  } catch (const Error& error) {
    if (std::string(error.what()).find("got none") == std::string::npos) throw;
    GTEST_SKIP() << "no NVRTC";
  }
  EXPECT_EQ(code.substr(1, 3), "ELF");
  EXPECT_NE(code.find("ulp_update"), std::string::npos);
  EXPECT_NE(compile_update_kernels("", 999).find(".entry ulp_update"),
            std::string::npos);  // PTX for one that is newer
  EXPECT_ERROR(compile_update_kernels("", 20), "compute capability");
}

}  // namespace
}  // namespace ulp::amp::test
