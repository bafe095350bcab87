#include "ulp/distributed/shards.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_map>

#include "ulp/base/error.h"

namespace ulp::distributed {

namespace {

/// Where a parameter stands in the groups.
struct GroupPlace {
  size_t group, index;
  uint32_t ordinal;
};

using GroupPlaces = std::unordered_map<const c10::TensorImpl*, GroupPlace>;

GroupPlaces places_in(const std::vector<amp::FusedGroup>& groups) {
  GroupPlaces places;
  uint32_t ordinal = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i < groups[g].params.size(); ++i, ++ordinal)
      places[groups[g].params[i].unsafeGetTensorImpl()] = {g, i, ordinal};
  }
  return places;
}

}  // namespace

const amp::FusedOptions& options_of(const amp::FusedOptimizer& optimizer, size_t group) {
  return static_cast<const amp::FusedOptions&>(optimizer.param_groups()[group].options());
}

const StateBuffer* find_buffer(const std::string& name) {
  const auto found = std::ranges::find(kStateBuffers, name, &StateBuffer::name);
  return found == std::end(kStateBuffers) ? nullptr : &*found;
}

std::optional<c10::ScalarType> type_of(const StateBuffer& buffer, const amp::FusedOptions& options,
                                       c10::ScalarType parameter) {
  if (buffer.member == &amp::FusedParamState::master) return amp::master_type(parameter, options.masters);
  const auto* sgd = std::get_if<amp::SgdRule>(&options.rule);
  const bool of_sgd = buffer.member == &amp::FusedParamState::momentum_buffer;
  if (of_sgd != (sgd != nullptr) || (sgd != nullptr && sgd->momentum == 0)) return std::nullopt;
  return options.moments == amp::MomentFormat::bf16 ? at::kBFloat16 : at::kFloat;  // others are not shared
}

const amp::FusedParamState* state_of(const amp::FusedOptimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr
                                          : static_cast<const amp::FusedParamState*>(found->second.get());
}

amp::FusedParamState& made_state(amp::FusedOptimizer& optimizer, const at::Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<amp::FusedParamState>();
  return static_cast<amp::FusedParamState&>(*state);
}

at::Tensor in_memory_order(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

namespace {

/// Each parameter's count of steps, the same on every rank.
std::vector<int64_t> all_steps(const DataParallel::State& parallel, const std::vector<Shard>& shards,
                               const amp::FusedOptimizer& pieces) {
  const auto count = static_cast<int64_t>(parallel.parameters.size());
  const at::Tensor steps = at::zeros({count}, at::kLong);
  auto* values = steps.mutable_data_ptr<int64_t>();
  for (const Shard& shard : shards) {
    if (const auto* state = state_of(pieces, shard.tensor)) values[shard.piece.parameter] = state->step;
  }
  parallel.group->all_reduce(steps, ReduceOp::max).wait();
  return {values, values + count};
}

/// One kind of buffer of one type, of one bucket: what all ranks hold of it, flat as the bucket.
at::Tensor gathered_buffer(const DataParallel::State& parallel, size_t bucket,
                           const std::vector<Shard>& shards, const amp::FusedOptimizer& pieces,
                           const StateBuffer& buffer, c10::ScalarType type) {
  const int64_t size = parallel.buckets[bucket]->share_size();
  const at::Tensor share = at::zeros({size}, type), whole = at::empty({size * parallel.group->size()}, type);
  for (const Shard& shard : shards) {
    const auto* state = shard.bucket == bucket ? state_of(pieces, shard.tensor) : nullptr;
    if (state == nullptr || !(state->*buffer.member).defined() ||
        (state->*buffer.member).scalar_type() != type)
      continue;
    share.narrow(0, shard.piece.at, shard.piece.size).copy_(state->*buffer.member);
  }
  // As bytes: transports know few types.
  parallel.group->all_gather(whole.view(at::kByte), share.view(at::kByte)).wait();
  return whole;
}

}  // namespace

std::vector<Shard> make_shards(const DataParallel::State& parallel,
                               const std::vector<amp::FusedGroup>& groups) {
  const GroupPlaces places = places_in(groups);
  size_t found = 0;
  for (const at::Tensor& parameter : parallel.parameters)
    found += places.contains(parameter.unsafeGetTensorImpl());
  if (found != places.size()) {
    fail("distributed.ShardedOptimizer", "expected parameters of the model that require gradients, got ",
         places.size() - found, " other tensors");
  }
  std::vector<Shard> shards;
  const ProcessGroup& group = *parallel.group;
  for (size_t b = 0; b < parallel.buckets.size(); ++b) {
    const Bucket& bucket = *parallel.buckets[b];
    for (const BucketPiece& piece : shards_of(bucket.plan(), group.rank(), group.size())) {
      const auto place = places.find(parallel.parameters[piece.parameter].unsafeGetTensorImpl());
      if (place == places.end()) continue;
      const auto& [in_group, index, ordinal] = place->second;
      shards.push_back(
          {b, piece, in_group, index, ordinal, bucket.parameter_share().narrow(0, piece.at, piece.size)});
    }
  }
  return shards;
}

std::unique_ptr<amp::FusedOptimizer> optimizer_of(const std::vector<Shard>& shards,
                                                  const std::vector<amp::FusedGroup>& groups, uint64_t seed) {
  std::vector<amp::FusedGroup> own = groups;
  for (amp::FusedGroup& group : own) group.params.clear();
  for (const Shard& shard : shards) own[shard.group].params.push_back(shard.tensor);
  // A small model may leave a rank without any.
  if (shards.empty() && !own.empty()) own[0].params.push_back(at::empty({0}, at::kFloat));
  auto optimizer = std::make_unique<amp::FusedOptimizer>(own, seed);
  for (const Shard& shard : shards) optimizer->set_location(shard.tensor, {shard.ordinal, shard.piece.begin});
  return optimizer;
}

void take_options(const amp::FusedOptimizer& optimizer, size_t index, amp::FusedGroup& group) {
  const amp::FusedOptions& options = options_of(optimizer, index);
  group.rule = options.rule;
  group.masters = options.masters;
  group.moments = options.moments;
}

void gather_states(const DataParallel::State& parallel, const std::vector<Shard>& shards,
                   const amp::FusedOptimizer& pieces, amp::FusedOptimizer& whole) {
  const at::NoGradGuard no_grad;
  const std::vector<int64_t> steps = all_steps(parallel, shards, pieces);
  std::unordered_map<const c10::TensorImpl*, size_t> group_of;
  for (size_t g = 0; g < whole.param_groups().size(); ++g) {
    for (const at::Tensor& parameter : whole.param_groups()[g].params())
      group_of[parameter.unsafeGetTensorImpl()] = g;
  }
  const auto type_in = [&](const StateBuffer& buffer,
                           const at::Tensor& parameter) -> std::optional<c10::ScalarType> {
    const auto group = group_of.find(parameter.unsafeGetTensorImpl());
    if (group == group_of.end()) return std::nullopt;
    return type_of(buffer, options_of(whole, group->second), parameter.scalar_type());
  };
  for (size_t b = 0; b < parallel.buckets.size(); ++b) {
    const BucketPlan& plan = parallel.buckets[b]->plan();
    for (const StateBuffer& buffer : kStateBuffers) {
      std::set<c10::ScalarType> types;
      for (const BucketSlot& slot : plan.slots) {
        const auto type = type_in(buffer, parallel.parameters[slot.parameter]);
        if (type && steps[slot.parameter] > 0) types.insert(*type);
      }
      for (const c10::ScalarType type : types) {
        const at::Tensor flat = gathered_buffer(parallel, b, shards, pieces, buffer, type);
        if (parallel.group->rank() != 0) continue;
        for (const BucketSlot& slot : plan.slots) {
          const at::Tensor& parameter = parallel.parameters[slot.parameter];
          if (steps[slot.parameter] == 0 || type_in(buffer, parameter) != type) continue;
          at::Tensor& its = made_state(whole, parameter).*buffer.member;
          its = at::empty_like(parameter, parameter.options().dtype(type).requires_grad(false));
          in_memory_order(its).copy_(flat.narrow(0, slot.begin, slot.size));
        }
      }
    }
  }
  if (parallel.group->rank() != 0) return;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] > 0) made_state(whole, parallel.parameters[i]).step = steps[i];
  }
}

void scatter_states(const std::vector<Shard>& shards, const amp::FusedOptimizer& whole,
                    amp::FusedOptimizer& pieces) {
  const at::NoGradGuard no_grad;
  pieces.state().clear();
  pieces.set_seed(whole.seed());
  for (size_t g = 0; g < whole.param_groups().size(); ++g)
    pieces.param_groups()[g].set_options(std::make_unique<amp::FusedOptions>(options_of(whole, g)));
  for (const Shard& shard : shards) {
    const auto* state = state_of(whole, whole.param_groups()[shard.group].params()[shard.index]);
    if (state == nullptr) continue;
    amp::FusedParamState& own = made_state(pieces, shard.tensor);
    own.step = state->step;
    for (const StateBuffer& buffer : kStateBuffers) {
      const at::Tensor& its = state->*buffer.member;
      if (its.defined())
        own.*buffer.member = in_memory_order(its).narrow(0, shard.piece.begin, shard.piece.size).clone();
    }
  }
}

}  // namespace ulp::distributed
