// Steps with shares of the training state: the weights of data parallel training, the memory of the formulas.
#include "ulp/distributed/sharded_optimizer.h"

#include <torch/torch.h>

#include <algorithm>
#include <limits>

#include "error_of.h"
#include "in_ranks.h"
#include "ulp/io/checkpoint.h"
#include "ulp/measure/memory_meter.h"

namespace {

using namespace ulp;
using distributed::DataParallel;
using distributed::ShardedOptimizer;
using distributed::ZeroStage;
namespace nn = torch::nn;

/// Odd sizes, so that shares cut parameters; a layer that stays fp32 and one that is not always used.
struct ShardNetImpl : nn::Module {
  explicit ShardNetImpl(at::ScalarType type) {
    torch::manual_seed(5);
    first = register_module("first", nn::Linear(37, 53));
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(3, 7, 3)));
    extra = register_module("extra", nn::Linear(53, 53));
    last = register_module("last", nn::Linear(53, 11));
    scale = register_parameter("scale", torch::ones({53}));
    conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    for (nn::Linear module : {first, extra, last}) module->to(type);
    conv->to(type);
  }
  at::Tensor forward(const at::Tensor& x, bool with_extra) {
    at::Tensor y = torch::gelu(first(x));
    if (with_extra) y = y + extra(y);
    y = last((y.to(at::kFloat) * scale).to(x.scalar_type()));
    const at::Tensor images = x.flatten().narrow(0, 0, 3 * 6 * 6).view({1, 3, 6, 6});
    return y.to(at::kFloat).mean() + conv(images).to(at::kFloat).square().mean();
  }
  nn::Linear first{nullptr}, extra{nullptr}, last{nullptr};
  nn::Conv2d conv{nullptr};
  at::Tensor scale;
};
TORCH_MODULE(ShardNet);

struct ShardCase {
  at::ScalarType type;
  amp::UpdateRule rule;
  amp::MasterWeights masters;
  amp::MomentFormat moments = amp::MomentFormat::fp32;
  std::optional<double> clip = {};
  int micro_batches = 1;
  bool scaled = false;
};

/// Two groups: weights, and the rest with another rate.
std::vector<amp::FusedGroup> groups_of(nn::Module& net, const ShardCase& one) {
  std::vector<amp::FusedGroup> groups = {{{}, one.rule, one.masters, one.moments},
                                         {{}, one.rule, one.masters, one.moments}};
  std::visit([](auto& rule) { rule.lr *= 0.5; }, groups[1].rule);
  for (const auto& parameter : net.named_parameters())
    groups[parameter.key().ends_with("weight") ? 0 : 1].params.push_back(parameter.value());
  return groups;
}

at::Tensor shard_input(int step, int part, int rank, at::ScalarType type) {
  torch::manual_seed(1000 + 100 * step + 10 * part + rank);
  return torch::randn({4, 37}).to(type);
}

/// The backwards of one step.
void run_backward(ShardNet& net, DataParallel& parallel, const ShardCase& one, amp::GradScaler& scaler,
                  int step, int rank) {
  for (int part = 0; part < one.micro_batches; ++part) {
    std::optional<DataParallel::NoSync> quiet;
    if (part + 1 < one.micro_batches) quiet.emplace(parallel);
    at::Tensor x = shard_input(step, part, rank, one.type);
    if (one.scaled && step == 2 && rank == 1) x.mul_(std::numeric_limits<float>::infinity());
    const bool with_extra = step % 3 != 1 || (rank == 0 && step > 3);
    scaler.scale(net->forward(x, with_extra) / one.micro_batches).backward();
  }
}

amp::GradScaler scaler_of(const ShardCase& one) {
  return amp::GradScaler({.init_scale = 64, .growth_interval = 3, .enabled = one.scaled});
}

constexpr int kShardSteps = 6;

std::vector<at::Tensor> trained_whole(const ShardCase& one,
                                      const std::shared_ptr<distributed::ProcessGroup>& group,
                                      std::vector<double>& norms) {
  ShardNet net(one.type);
  DataParallel parallel(*net, group);
  amp::FusedOptimizer optimizer(groups_of(*net, one), /*seed=*/9);
  amp::GradScaler scaler = scaler_of(one);
  for (int step = 0; step < kShardSteps; ++step) {
    optimizer.zero_grad();
    run_backward(net, parallel, one, scaler, step, group->rank());
    norms.push_back(amp::fused_step(optimizer, &scaler, {.max_norm = one.clip}).grad_norm);
    if (one.scaled) scaler.update();
  }
  return net->parameters();
}

std::vector<at::Tensor> trained_sharded(const ShardCase& one, ZeroStage stage,
                                        const std::shared_ptr<distributed::ProcessGroup>& group,
                                        std::vector<double>& norms) {
  ShardNet net(one.type);
  DataParallel parallel(*net, group, {.zero = stage, .bucket_mib = 0.01, .first_bucket_mib = 0.005});
  ShardedOptimizer optimizer(parallel, groups_of(*net, one), /*seed=*/9);
  amp::GradScaler scaler = scaler_of(one);
  for (int step = 0; step < kShardSteps; ++step) {
    optimizer.zero_grad();
    run_backward(net, parallel, one, scaler, step, group->rank());
    norms.push_back(optimizer.step(&scaler, {.max_norm = one.clip}).grad_norm);
    if (one.scaled) scaler.update();
    if (one.scaled && step == 2) {
      EXPECT_EQ(scaler.get_scale(), 32) << "the step of the infinity was skipped";
    }
  }
  return net->parameters();
}

const std::vector<ShardCase>& shard_cases() {
  using enum amp::MasterWeights;
  static const std::vector<ShardCase> all = {
      {at::kFloat, amp::AdamWRule{.lr = 0.01}, fp32},
      {at::kFloat, amp::SgdRule{.lr = 0.05, .momentum = 0.9, .nesterov = true}, fp32, amp::MomentFormat::fp32,
       0.05},
      {at::kBFloat16, amp::AdamRule{.lr = 0.01}, fp32, amp::MomentFormat::fp32, 0.05, 1, true},
      {at::kBFloat16, amp::AdamWRule{.lr = 0.01}, split},
      {at::kBFloat16, amp::AdamWRule{.lr = 0.01}, stochastic, amp::MomentFormat::bf16},
      {at::kBFloat16, amp::AdamWRule{.lr = 0.01}, kahan, amp::MomentFormat::bf16, 0.1},
      {at::kHalf, amp::AdamWRule{.lr = 0.01}, fp32, amp::MomentFormat::fp32, {}, 1, true},
  };
  return all;
}

void expect_same_bits(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected,
                      size_t which) {
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(torch::equal(got[i], expected[i])) << "parameter " << i << " of case " << which;
}

TEST_IN_RANKS(2, ShardedOptimizer, GivesTheWeightsOfDataParallelBitForBit) {
  const auto group = test::rank_group();
  for (size_t i = 0; i < shard_cases().size(); ++i) {
    std::vector<double> norms, of_states, of_gradients;
    const auto expected = trained_whole(shard_cases()[i], group, norms);
    expect_same_bits(trained_sharded(shard_cases()[i], ZeroStage::states, group, of_states), expected, i);
    for (int step = 0; step < kShardSteps; ++step)
      EXPECT_TRUE(norms[step] == of_states[step] || std::isnan(norms[step]))
          << norms[step] << ' ' << of_states[step];
    // Without clipping, whose norm is summed in another order, two ranks' gradients have the same sums.
    const auto shared = trained_sharded(shard_cases()[i], ZeroStage::gradients, group, of_gradients);
    if (!shard_cases()[i].clip) expect_same_bits(shared, expected, i);
    for (int step = 0; step < kShardSteps; ++step) {
      if (std::isfinite(norms[step])) {
        EXPECT_NEAR(of_gradients[step], norms[step], 1e-9 * norms[step]);
      }
    }
  }
}

TEST_IN_RANKS(3, ShardedOptimizer, AgreesToRoundingWithAccumulationOnThreeRanks) {
  const auto group = test::rank_group();
  const ShardCase one{at::kFloat,
                      amp::SgdRule{.lr = 0.05, .momentum = 0.9},
                      amp::MasterWeights::fp32,
                      amp::MomentFormat::fp32,
                      0.2,
                      /*micro_batches=*/3};
  std::vector<double> ignored;
  const auto expected = trained_whole(one, group, ignored);
  for (const ZeroStage stage : {ZeroStage::states, ZeroStage::gradients}) {
    const auto got = trained_sharded(one, stage, group, ignored);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(torch::allclose(got[i], expected[i], 1e-5, 1e-6)) << "parameter " << i;
  }
}

/// Bytes of a rank between backward and step, beside the parameters' gradients that backward has in flight.
int64_t bytes_of_rank(ZeroStage stage, const std::shared_ptr<distributed::ProcessGroup>& group,
                      int64_t& parameters) {
  const measure::MemoryMeter meter;
  nn::Sequential net(nn::Linear(256, 512), nn::Linear(512, 512), nn::Linear(512, 256));
  net->to(at::kBFloat16);
  parameters = 0;
  for (const at::Tensor& parameter : net->parameters()) parameters += parameter.numel();
  const std::vector<amp::FusedGroup> groups = {
      {net->parameters(), amp::AdamWRule{}, amp::MasterWeights::fp32}};
  DataParallel parallel(*net, group, {.zero = stage, .bucket_mib = 0.25, .first_bucket_mib = 0.25});
  std::unique_ptr<ShardedOptimizer> sharded;
  std::unique_ptr<amp::FusedOptimizer> whole;
  if (stage == ZeroStage::off) {
    whole = std::make_unique<amp::FusedOptimizer>(groups);
  } else {
    sharded = std::make_unique<ShardedOptimizer>(parallel, groups);
  }
  for (int step = 0; step < 3; ++step) {
    sharded ? sharded->zero_grad() : whole->zero_grad();
    net->forward(torch::randn({2, 256}).to(at::kBFloat16)).square().mean().backward();
    if (step == 2) return meter.live_bytes();
    sharded ? (void)sharded->step(nullptr) : (void)amp::fused_step(*whole, nullptr);
  }
  return 0;
}

TEST_IN_RANKS(3, ShardedOptimizer, TakesTheMemoryOfTheFormulas) {
  const auto group = test::rank_group();
  const double n = group->size();
  int64_t parameters = 0;
  const auto expect = [&](ZeroStage stage, double bytes_a_parameter) {
    // The transport's threads may hold a bucket for a moment, and give it back unseen by the meter: the least of several.
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < 8; ++i) least = std::min(least, bytes_of_rank(stage, group, parameters));
    const auto bytes = static_cast<double>(least);
    const double expected = bytes_a_parameter * static_cast<double>(parameters);
    EXPECT_NEAR(bytes / expected, 1, 0.03) << "stage " << enum_name(stage) << " of rank " << group->rank();
  };
  expect(ZeroStage::off, 16);
  expect(ZeroStage::states, 4 + 12 / n);
  expect(ZeroStage::gradients, 2 + 14 / n);
}

TEST_IN_RANKS(2, ShardedOptimizer, StateIsGatheredAndGoesOnWithAnyNumberOfProcesses) {
  const auto group = test::rank_group();
  const ShardCase one{at::kBFloat16, amp::AdamWRule{.lr = 0.01}, amp::MasterWeights::split,
                      amp::MomentFormat::bf16};
  const std::filesystem::path file = test::rank_folder() / "run.ckpt";
  ShardNet net(one.type);
  DataParallel parallel(*net, group, {.zero = ZeroStage::gradients, .bucket_mib = 0.01});
  ShardedOptimizer optimizer(parallel, groups_of(*net, one), /*seed=*/9);
  amp::GradScaler scaler = scaler_of(one);
  const auto step = [&](ShardedOptimizer& with, ShardNet& on, DataParallel& by, int number) {
    with.zero_grad();
    run_backward(on, by, one, scaler, number, group->rank());
    with.step(nullptr);
  };
  for (int i = 0; i < 3; ++i) step(optimizer, net, parallel, i);
  const auto all = optimizer.gather();
  EXPECT_EQ(all != nullptr, group->rank() == 0);
  if (all) io::save_checkpoint(file, {.model = net.get(), .optimizer = all.get()});
  group->barrier();
  step(optimizer, net, parallel, 3);

  ShardNet again(one.type);
  DataParallel other(*again, group, {.zero = ZeroStage::states});
  ShardedOptimizer resumed(other, groups_of(*again, one), /*seed=*/1);
  const auto whole = resumed.whole();
  io::CheckpointParts parts{.model = again.get(), .optimizer = whole.get()};
  io::load_checkpoint(file, parts);
  resumed.scatter(*whole);
  step(resumed, again, other, 3);
  expect_same_bits(again->parameters(), net->parameters(), 0);

  // One process takes it as its own.
  ShardNet single(one.type);
  amp::FusedOptimizer own(groups_of(*single, one), /*seed=*/1);
  parts = {.model = single.get(), .optimizer = &own};
  io::load_checkpoint(file, parts);
  DataParallel whole_parallel(*single, group);
  own.zero_grad();
  run_backward(single, whole_parallel, one, scaler, 3, group->rank());
  amp::fused_step(own, nullptr);
  expect_same_bits(single->parameters(), net->parameters(), 1);
}

TEST(ShardedOptimizer, RefusesWhatItCannotShare) {
  nn::Linear net(4, 4), other(4, 4);
  const auto group = distributed::single_process();
  DataParallel off(*net, group), on(*net, group, {.zero = ZeroStage::states});
  const std::vector<amp::FusedGroup> own = {{net->parameters(), amp::SgdRule{}}};
  EXPECT_ERROR(ShardedOptimizer(off, own), "expected a stage of ZeRO from 1 on, got 0");
  EXPECT_ERROR(ShardedOptimizer(on, {{other->parameters(), amp::SgdRule{}}}), "got 2 other tensors");
}

}  // namespace
