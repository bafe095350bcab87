#include "ulp/distributed/sharded_optimizer.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/distributed/data_parallel_state.h"
#include "ulp/distributed/gradient_total.h"
#include "ulp/distributed/shards.h"

namespace ulp::distributed {

namespace {

constexpr const char* kShardedOptimizerWhere = "distributed.ShardedOptimizer";

}  // namespace

struct ShardedOptimizer::State {
  DataParallel::State& parallel;
  std::vector<amp::FusedGroup> groups;  ///< of whole parameters
  uint64_t seed;
  std::vector<Shard> shards;
  std::unique_ptr<amp::FusedOptimizer> optimizer;

  /// Gives each piece its gradient: a view, or nothing where nobody has one.
  void place_gradients() {
    for (Shard& shard : shards) {
      const Bucket& bucket = *parallel.buckets[shard.bucket];
      const bool used = parallel.shares_gradients()
                            ? parallel.used[shard.piece.parameter]
                            : parallel.parameters[shard.piece.parameter].grad().defined();
      const at::Tensor share = used ? bucket.gradient_share() : at::Tensor();
      shard.tensor.mutable_grad() =
          share.defined() ? share.narrow(0, shard.piece.at, shard.piece.size) : at::Tensor();
    }
  }

  amp::GradientTotal measure() const {
    std::vector<at::Tensor> gradients;
    if (parallel.shares_gradients()) {
      std::vector<at::Tensor> own;
      for (const Shard& shard : shards) own.push_back(shard.tensor);
      return total_gradients(*parallel.group, own);
    }
    // Every rank has all of them: the same sum in the same order as without shares.
    for (const amp::FusedGroup& group : groups) {
      for (const at::Tensor& parameter : group.params)
        if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    }
    return {amp::gradient_square_sum(gradients), static_cast<int64_t>(gradients.size())};
  }

  /// Everyone's updated shares to everyone.
  void exchange_parameters() const {
    std::vector<Work> works;
    // Pieces of a model gather theirs when they run.
    if (!parallel.units)
      for (const auto& bucket : parallel.buckets) works.push_back(bucket->start_gather());
    for (Work& work : works) work.wait();
    // Autograd and the autocast cache recognise changed values by their version.
    for (const at::Tensor& parameter : parallel.parameters) parameter.unsafeGetTensorImpl()->bump_version();
  }
};

ShardedOptimizer::ShardedOptimizer(DataParallel& parallel, const std::vector<amp::FusedGroup>& groups,
                                   uint64_t seed) {
  DataParallel::State& its = parallel.state();
  if (its.options.zero == ZeroStage::off)
    fail(kShardedOptimizerWhere, "expected a stage of ZeRO from 1 on, got 0");
  for (const amp::FusedGroup& group : groups) {
    if (group.moments != amp::MomentFormat::fp32 && group.moments != amp::MomentFormat::bf16)
      fail(kShardedOptimizerWhere, "expected moments in fp32 or bf16, got ", amp::to_string(group.moments));
  }
  if (!its.units)
    for (const auto& bucket : its.buckets) bucket->flatten_parameters();
  auto shards = make_shards(its, groups);
  auto optimizer = optimizer_of(shards, groups, seed);
  state_ = std::make_unique<State>(its, groups, seed, std::move(shards), std::move(optimizer));
}

ShardedOptimizer::~ShardedOptimizer() = default;

amp::FusedOptimizer& ShardedOptimizer::optimizer() {
  return *state_->optimizer;
}

const amp::FusedOptimizer& ShardedOptimizer::optimizer() const {
  return *state_->optimizer;
}

ProcessGroup& ShardedOptimizer::group() const {
  return *state_->parallel.group;
}

const std::vector<Shard>& ShardedOptimizer::shards() const {
  return state_->shards;
}

void ShardedOptimizer::zero_grad() {
  for (const auto& bucket : state_->parallel.buckets) bucket->forget_gradients();
  for (Shard& shard : state_->shards) shard.tensor.mutable_grad().reset();
  for (at::Tensor& parameter : state_->parallel.parameters) parameter.mutable_grad().reset();
  state_->parallel.used.assign(state_->parallel.parameters.size(), false);
}

amp::FusedStepResult ShardedOptimizer::step(amp::GradScaler* scaler, const amp::FusedStepOptions& options) {
  state_->place_gradients();
  amp::FusedStepOptions joined = options;
  joined.measure = [&] { return state_->measure(); };
  const amp::FusedStepResult done = amp::fused_step(*state_->optimizer, scaler, joined);
  if (done.result == amp::StepResult::stepped) state_->exchange_parameters();
  return done;
}

std::unique_ptr<amp::FusedOptimizer> ShardedOptimizer::whole() const {
  std::vector<amp::FusedGroup> groups = state_->groups;
  for (size_t g = 0; g < groups.size(); ++g) take_options(*state_->optimizer, g, groups[g]);
  return std::make_unique<amp::FusedOptimizer>(groups, state_->seed);
}

std::unique_ptr<amp::FusedOptimizer> ShardedOptimizer::gather() const {
  auto all = whole();
  gather_states(state_->parallel, state_->shards, *state_->optimizer, *all);
  return state_->parallel.group->rank() == 0 ? std::move(all) : nullptr;
}

void ShardedOptimizer::scatter(const amp::FusedOptimizer& from) {
  state_->seed = from.seed();
  scatter_states(state_->shards, from, *state_->optimizer);
}

}  // namespace ulp::distributed
