// State on the host for parameters of a device, and in files. The CPU as the device makes real copies, too;
// where there is CUDA, it takes part.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "fused_support.h"
#include "temporary_folder.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/libtorch/bit_mask.h"

namespace ulp::amp::test {
namespace {

struct OffloadCase {
  UpdateRule rule;
  at::ScalarType type;
  MasterWeights masters;
  MomentFormat moments;
};
const OffloadCase kOffloadCases[] = {
    {AdamWRule{}, at::kFloat, MasterWeights::fp32, MomentFormat::fp32},
    {AdamRule{}, at::kBFloat16, MasterWeights::fp32, MomentFormat::int8},
    {AdamWRule{}, at::kBFloat16, MasterWeights::split, MomentFormat::int4},
    {AdamWRule{}, at::kBFloat16, MasterWeights::kahan, MomentFormat::bf16},
    {SgdRule{.lr = 0.1, .momentum = 0.9}, at::kBFloat16, MasterWeights::stochastic, MomentFormat::int8},
    {AdamWRule{}, at::kHalf, MasterWeights::fp32, MomentFormat::fp32}};

FusedOptimizer make_offloaded(const Tensors& parameters, const OffloadCase& how,
                              const OffloadOptions& offload) {
  return FusedOptimizer({FusedGroup{parameters, how.rule, how.masters, how.moments}}, 7, offload);
}

/// Parameters of the case on a device, some steps later; everything that touches state happens on the way.
Tensors trained(const OffloadCase& how, at::Device device, const OffloadOptions& offload) {
  Tensors parameters;
  for (const at::Tensor& each : make_parameters(how.type))
    parameters.push_back(each.detach().to(device).requires_grad_());
  FusedOptimizer optimizer = make_offloaded(parameters, how, offload);
  const at::Tensor keep = torch::arange(16500).remainder(3).ne(0);
  for (uint64_t step = 0; step < 6; ++step) {
    set_gradients(parameters, step);
    if (step == 3) {
      parameters[1].mutable_grad()[0][0] = INFINITY;
      EXPECT_EQ(fused_step(optimizer, nullptr, {.max_norm = 5.0}).result, StepResult::skipped_nonfinite);
      continue;
    }
    if (step == 2) optimizer.set_mask(parameters[4], libtorch::pack_mask(keep));
    if (step == 4) {  // someone loads other weights
      const at::NoGradGuard no_grad;
      parameters[2].mul_(0.5);
      optimizer.reset_masters();
    }
    if (step % 2 == 0) {
      EXPECT_EQ(fused_step(optimizer, nullptr, {.max_norm = 5.0}).result, StepResult::stepped);
    } else {
      optimizer.step();
      optimizer.clamp(parameters[4], -0.5, 0.5);
    }
  }
  for (at::Tensor& each : parameters) each = optimizer.master_weight(each).cpu();
  return parameters;
}

void expect_same(const Tensors& expected, const Tensors& got) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::equal(expected[i], got[i])) << i;
}

TEST(Offload, StepsHaveTheBitsOfStepsOnTheHost) {
  for (const OffloadCase& how : kOffloadCases) {
    SCOPED_TRACE(std::string(name_of(how.rule)) + ' ' + to_string(how.masters) + ' ' +
                 to_string(how.moments));
    const Tensors expected = trained(how, at::kCPU, {});
    for (const int64_t bucket_bytes : {1, 5000, 1 << 20})
      expect_same(expected, trained(how, at::kCPU, {.to_host = true, .bucket_bytes = bucket_bytes}));
  }
}

TEST(Offload, ParametersOnCudaGetTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA";
  for (const OffloadCase& how : kOffloadCases) {
    SCOPED_TRACE(std::string(name_of(how.rule)) + ' ' + to_string(how.masters));
    const Tensors expected = trained(how, at::kCPU, {});
    for (const int64_t bucket_bytes : {1, 1 << 20})
      expect_same(expected, trained(how, at::kCUDA, {.to_host = true, .bucket_bytes = bucket_bytes}));
  }
}

TEST(Offload, CopiesAreApartFromTheParametersAndFollowThem) {
  auto weight = torch::ones({5000}).requires_grad_();
  FusedOptimizer optimizer = make_offloaded({weight}, kOffloadCases[0], {.to_host = true});
  weight.mutable_grad() = torch::ones({5000});
  const void* before = weight.const_data_ptr();
  const int64_t version = weight._version();
  optimizer.step();
  EXPECT_EQ(weight.const_data_ptr(), before);
  EXPECT_GT(weight._version(), version);
  EXPECT_LT(weight.max().item<float>(), 1);
  weight.set_data(torch::full({5000}, 3.0));  // another memory
  optimizer.step();
  EXPECT_NEAR(weight.mean().item<float>(), 3, 0.01);
}

TEST(Offload, StateInFilesHasTheSameBitsAndLeavesNoFiles) {
  const ulp::test::TemporaryFolder folder;
  for (const OffloadCase& how : kOffloadCases) {
    const Tensors expected = trained(how, at::kCPU, {});
    expect_same(expected, trained(how, at::kCPU, {.state_folder = folder.path().string()}));
    expect_same(expected, trained(how, at::kCPU, {.to_host = true, .state_folder = folder.path().string()}));
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(Offload, WhatCannotBeIsRefused) {
  auto weight = torch::ones({50000}).requires_grad_();
  weight.mutable_grad() = torch::ones({50000});
  EXPECT_ERROR(make_offloaded({weight}, kOffloadCases[0], {.bucket_bytes = 0}), "bucket_bytes > 0, got 0");
  FusedOptimizer nowhere = make_offloaded({weight}, kOffloadCases[0], {.state_folder = "/no/such/folder"});
  EXPECT_ERROR(nowhere.step(), "got '/no/such/folder': No such file or directory");
  auto elsewhere = torch::ones({5}, at::TensorOptions(at::kMeta)).requires_grad_();
  EXPECT_ERROR(make_offloaded({elsewhere}, kOffloadCases[0], {.state_folder = "/tmp"}), "OffloadOptions");
  EXPECT_ERROR(make_offloaded({weight, elsewhere}, kOffloadCases[0], {.to_host = true}), "on one device");
}

}  // namespace
}  // namespace ulp::amp::test
