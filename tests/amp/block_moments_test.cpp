// Moments in blocks of 8 and 4 bits as an optimizer keeps them: sizes, masks, orders of memory, groups.
#include "ulp/amp/optimizer/block_moments.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <sstream>

#include "fused_support.h"
#include "ulp/libtorch/bit_mask.h"

namespace ulp::amp::test {
namespace {

constexpr MomentFormat kFormats[] = {MomentFormat::int8, MomentFormat::int4};

at::Tensor narrow_parameter(at::IntArrayRef shape, at::ScalarType type = at::kFloat, uint64_t seed = 1) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::randn(shape, generator).to(type).requires_grad_();
}
void give_gradient(at::Tensor parameter, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  parameter.mutable_grad() =
      at::empty_like(parameter.detach()).copy_(torch::randn(parameter.sizes(), generator));
}

/// Steps against a gradient that points from a goal to the weight; what is left of a distance of 1.4.
double distance_after(const UpdateRule& rule, MomentFormat moments, MasterWeights masters,
                      at::ScalarType type) {
  auto weight = narrow_parameter({5000}, type, 3);
  const at::Tensor goal = narrow_parameter({5000}, at::kFloat, 4).detach();
  FusedOptimizer optimizer({weight}, rule, masters, 1, moments);
  for (int step = 0; step < 300; ++step) {
    weight.mutable_grad() = (weight.detach().to(at::kFloat) - goal).to(type);
    optimizer.step();
  }
  return (weight.detach().to(at::kFloat) - goal).norm().item<double>() / goal.norm().item<double>();
}

TEST(BlockMoments, TakeTwoBytesAndOneByteAParameterAndSmallOnesStayFp32) {
  const int64_t n = 1 << 20;
  auto large = narrow_parameter({1024, 1024}), small = narrow_parameter({4095}),
       least = narrow_parameter({4096});
  for (const at::Tensor& each : {large, small, least}) give_gradient(each, 1);
  const auto bytes = [&](const at::Tensor& parameter, MomentFormat moments) {
    FusedOptimizer optimizer({parameter}, AdamWRule{}, MasterWeights::fp32, 0, moments);
    EXPECT_EQ(optimizer.state_bytes(), 0);
    optimizer.step();
    EXPECT_EQ(optimizer.state_bytes(), 2 * moment_bytes(moments, parameter.numel()));
    return optimizer.state_bytes();
  };
  EXPECT_EQ(bytes(large, MomentFormat::fp32), 8 * n);
  EXPECT_EQ(bytes(large, MomentFormat::bf16), 4 * n);
  EXPECT_EQ(bytes(large, MomentFormat::int8), 2 * n + 2 * 4 * n / 256);  // 2.03 bytes a parameter
  EXPECT_EQ(bytes(large, MomentFormat::int4), n + 2 * 4 * n / 128);      // 1.06
  for (const MomentFormat moments : kFormats) {
    EXPECT_EQ(bytes(small, moments), 8 * 4095);
    EXPECT_LT(bytes(least, moments), 3 * 4096);
  }
}

TEST(BlockMoments, EveryRuleAndMasterReachesItsGoal) {
  const UpdateRule rules[] = {SgdRule{.lr = 0.05, .momentum = 0.9, .nesterov = true}, AdamRule{.lr = 0.02},
                              AdamWRule{.lr = 0.02, .weight_decay = 0}};
  for (const UpdateRule& rule : rules) {
    for (const MomentFormat moments : kFormats) {
      const auto compare = [&](MasterWeights masters, at::ScalarType type) {
        SCOPED_TRACE(std::string(name_of(rule)) + ' ' + to_string(moments) + ' ' + to_string(masters));
        const double wide = distance_after(rule, MomentFormat::fp32, masters, type);
        const double own = distance_after(rule, moments, masters, type);
        // In 4 bits a second moment is at least 1/16 of its block's largest: late steps are shorter.
        EXPECT_LT(own, moments == MomentFormat::int8 ? wide + 0.02 : 0.45);
      };
      compare(MasterWeights::fp32, at::kFloat);
      for (const MasterWeights masters :
           {MasterWeights::fp32, MasterWeights::split, MasterWeights::kahan, MasterWeights::stochastic})
        compare(masters, at::kBFloat16);
      compare(MasterWeights::fp32, at::kHalf);
    }
  }
}

/// The largest steps of [64, 128] weights, one a call of step(), under gradients scale * draw().
std::vector<double> largest_steps(MomentFormat moments, const at::Tensor& scale,
                                  const std::function<at::Tensor(at::Generator)>& draw, int steps) {
  auto generator = at::detail::createCPUGenerator(17);
  auto weight = torch::zeros({64, 128}).requires_grad_();
  FusedOptimizer optimizer({weight}, AdamRule{.lr = 1e-3}, MasterWeights::fp32, 1, moments);
  std::vector<double> largest;
  for (int step = 0; step < steps; ++step) {
    const at::Tensor before = weight.detach().clone();
    weight.mutable_grad() = scale * draw(generator);
    optimizer.step();
    largest.push_back((weight.detach() - before).abs().max().item<double>());
  }
  largest.push_back(weight.detach().abs().max().item<double>());
  return largest;
}

at::Tensor one_column(double others) {
  at::Tensor scale = torch::full({64, 128}, others);
  scale.select(1, 0).fill_(1);
  return scale;
}

/// A second moment that becomes 0, where the first does not, makes a step of any size.
TEST(BlockMoments, StepsInEightBitsAreAtMostTwiceThoseOfFp32) {
  torch::manual_seed(6);
  std::vector<std::pair<std::string, at::Tensor>> scales;
  for (const double ratio : {1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6}) {
    std::ostringstream name;
    name << "one column " << ratio << " times the others";
    scales.emplace_back(name.str(), one_column(1 / ratio));
    scales.emplace_back("random up to that", at::pow(ratio, -torch::rand({64, 128})));
  }
  const std::vector<int64_t> sizes = {64, 128};
  const std::vector<std::pair<const char*, std::function<at::Tensor(at::Generator)>>> draws = {
      {"normal", [&](at::Generator g) { return torch::randn(sizes, g); }},
      {"uniform", [&](at::Generator g) { return torch::rand(sizes, g) * 2 - 1; }},
      {"of one sign", [&](at::Generator g) { return torch::randn(sizes, g).abs(); }},
      {"the same", [&](at::Generator) { return torch::ones(sizes); }},
      {"now and then none",
       [&](at::Generator g) { return torch::randn(sizes, g) * torch::rand(sizes, g).gt(0.7); }}};
  for (const auto& [scale_name, scale] : scales) {
    for (const auto& [draw_name, draw] : draws) {
      SCOPED_TRACE(scale_name + ", " + draw_name);
      const std::vector<double> wide = largest_steps(MomentFormat::fp32, scale, draw, 40),
                                own = largest_steps(MomentFormat::int8, scale, draw, 40);
      for (size_t i = 0; i < wide.size(); ++i) ASSERT_LE(own[i], 2 * wide[i]) << "step " << i;
    }
  }
}

/// Blocks whose elements are alike, or a thousandth of each other, are stepped like with fp32 moments.
TEST(BlockMoments, SmallElementsOfABlockAreTrainedAsFastAsWithFp32) {
  for (const double ratio : {1.0, 30.0, 1000.0}) {
    const auto ones = [](at::Generator) { return torch::ones({64, 128}); };
    for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::int8}) {
      auto weight = torch::zeros({64, 128}).requires_grad_();
      FusedOptimizer optimizer({weight}, AdamRule{.lr = 1e-3}, MasterWeights::fp32, 1, moments);
      for (int step = 0; step < 20; ++step) {
        weight.mutable_grad() = one_column(1 / ratio) * ones({});
        optimizer.step();
      }
      // All gradients are constant: each weight has gone 20 times lr.
      EXPECT_LT((weight.detach() + 0.02).abs().max().item<double>(), 0.02 * 0.08) << ratio;
    }
  }
}

TEST(BlockMoments, BitsDependNeitherOnThreadsNorOnSeed) {
  const int threads = at::get_num_threads();
  for (const MomentFormat moments : kFormats) {
    const auto run = [&](uint64_t seed, int count) {
      at::set_num_threads(count);
      Tensors parameters = make_parameters(at::kBFloat16);
      parameters.push_back(narrow_parameter({40000}, at::kBFloat16));
      FusedOptimizer optimizer(parameters, AdamWRule{}, MasterWeights::split, seed, moments);
      for (uint64_t step = 0; step < 3; ++step) {
        set_gradients(parameters, step);
        give_gradient(parameters.back(), step);
        optimizer.step();
      }
      return parameters;
    };
    const Tensors once = run(1, 1), again = run(2, 3);
    for (size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(torch::equal(once[i], again[i])) << i;
  }
  at::set_num_threads(threads);
}

TEST(BlockMoments, HeldElementsStayAndTheirMomentsAreZero) {
  for (const MomentFormat moments : kFormats) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(to_string(moments));
      auto weight = narrow_parameter({65, 9, 3, 3}, type);
      weight = weight.detach().contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
      FusedOptimizer optimizer({weight}, AdamWRule{.lr = 0.1}, MasterWeights::split, 1, moments);
      give_gradient(weight, 1);
      optimizer.step();
      const at::Tensor keep = narrow_parameter({65, 9, 3, 3}, at::kFloat, 9).detach().gt(0);
      optimizer.set_mask(weight, libtorch::pack_mask(keep));
      const auto expect_cleared = [&] {
        FusedParamState state = state_of(optimizer, weight);
        widen_moments(state, weight);
        EXPECT_EQ(state.exp_avg.masked_select(~keep).count_nonzero().item<int64_t>(), 0);
        EXPECT_GT(state.exp_avg.masked_select(keep).count_nonzero().item<int64_t>(), 1000);
        if (moments == MomentFormat::int8) {
          EXPECT_EQ(state.exp_avg_sq.masked_select(~keep).count_nonzero().item<int64_t>(), 0);
        } else {  // no zero: a sixteenth of the block's largest
          EXPECT_LE(state.exp_avg_sq.masked_select(~keep).max().item<float>(),
                    state.exp_avg_sq.max().item<float>() / 16);
        }
      };
      expect_cleared();
      const at::Tensor before = weight.detach().clone();
      for (uint64_t step = 2; step < 5; ++step) {
        give_gradient(weight, step);
        weight.mutable_grad().masked_fill_(~keep, NAN);
        optimizer.step();
      }
      expect_cleared();
      EXPECT_TRUE(torch::equal(weight.masked_select(~keep), before.masked_select(~keep)));
      EXPECT_FALSE(torch::equal(weight.masked_select(keep), before.masked_select(keep)));
      EXPECT_TRUE(weight.isfinite().all().item<bool>());
    }
  }
}

TEST(BlockMoments, AnotherOrderOfMemoryIsRefused) {
  for (const MomentFormat moments : kFormats) {
    auto weight = narrow_parameter({32, 16, 3, 3});
    FusedOptimizer optimizer({weight}, AdamWRule{}, MasterWeights::fp32, 1, moments);
    give_gradient(weight, 1);
    optimizer.step();
    weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    give_gradient(weight, 2);
    EXPECT_ERROR(optimizer.step(), "its first step");
    weight.set_data(torch::zeros({64, 16, 3, 3}));
    weight.mutable_grad() = torch::zeros({64, 16, 3, 3});
    EXPECT_ERROR(optimizer.step(), "parameter 0 of group 0");
  }
}

TEST(BlockMoments, StateOfAnotherFormatIsRefused) {
  auto weight = narrow_parameter({5000});
  FusedOptimizer optimizer({weight}, AdamWRule{}, MasterWeights::fp32, 1, MomentFormat::int8);
  give_gradient(weight, 1);
  optimizer.step();
  auto& options = static_cast<FusedOptions&>(optimizer.param_groups()[0].options());
  options.moments = MomentFormat::fp32;
  EXPECT_ERROR(optimizer.step(), "expected state of type Float");
  options.moments = MomentFormat::int4;
  EXPECT_ERROR(optimizer.step(), "expected shape [2500], got [5000]");
  options.moments = MomentFormat::int8;
  state_of(optimizer, weight).exp_avg_absmax.reset();
  EXPECT_ERROR(optimizer.step(), "expected 20 fp32 numbers in 'exp_avg_absmax', got none");
}

TEST(BlockMoments, WideAndNarrowAgainKeepsNearlyAll) {
  for (const MomentFormat moments : kFormats) {
    auto weight = narrow_parameter({81, 64});
    FusedOptimizer optimizer({weight}, AdamWRule{}, MasterWeights::fp32, 1, moments);
    give_gradient(weight, 1);
    optimizer.step();
    FusedParamState state = state_of(optimizer, weight);
    const at::Tensor codes = state.exp_avg_sq, absmax = state.exp_avg_sq_absmax;
    widen_moments(state, weight);
    EXPECT_EQ(state.exp_avg.scalar_type(), at::kFloat);
    EXPECT_FALSE(state.exp_avg_absmax.defined());
    // The first moments of a first step are a tenth of the gradient.
    const double far = (state.exp_avg - weight.grad() * 0.1).abs().max().item<double>();
    EXPECT_LT(far, moments == MomentFormat::int8 ? 0.01 : 0.1);
    narrow_moments(state, weight, moments);
    EXPECT_TRUE(torch::equal(state.exp_avg_sq, codes));  // the largest is kept, so that all are
    EXPECT_TRUE(torch::equal(state.exp_avg_sq_absmax, absmax));
    EXPECT_EQ(state.memory_order, "0,1");
  }
}

TEST(BlockMoments, ParametersThatAreNamedKeepFp32) {
  auto embedding = narrow_parameter({100, 64}), other = narrow_parameter({100, 64});
  const auto groups = with_fp32_moments(
      {{{embedding, other}, AdamWRule{}, MasterWeights::fp32, MomentFormat::int8}}, {embedding});
  ASSERT_EQ(groups.size(), 2u);
  FusedOptimizer optimizer(groups, 1);
  give_gradient(embedding, 1);
  give_gradient(other, 2);
  optimizer.step();
  EXPECT_EQ(state_of(optimizer, embedding).exp_avg.scalar_type(), at::kFloat);
  EXPECT_EQ(state_of(optimizer, other).exp_avg.scalar_type(), at::kByte);
  EXPECT_EQ(with_fp32_moments(groups, {embedding, other}).size(), 2u);
  EXPECT_EQ(with_fp32_moments(groups, {}).size(), 2u);
}

}  // namespace
}  // namespace ulp::amp::test
