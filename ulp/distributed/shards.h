// What a rank's share of the buckets holds of each parameter, and the optimizer's state of that; internal to
// the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/distributed/bucket_plan.h"
#include "ulp/distributed/data_parallel_state.h"

namespace ulp::distributed {

/// A piece of a parameter that this rank updates.
struct Shard {
  size_t bucket;
  BucketPiece piece;
  size_t group, index;  ///< of the whole parameter in the groups
  uint32_t ordinal;     ///< in the list of all parameters of the groups
  at::Tensor tensor;    ///< the piece's elements, flat: a view of the bucket's parameters
};

/// A buffer of the optimizer's state.
struct StateBuffer {
  std::string_view name;
  at::Tensor amp::FusedParamState::*member;
};
inline constexpr StateBuffer kStateBuffers[] = {{"momentum_buffer", &amp::FusedParamState::momentum_buffer},
                                                {"exp_avg", &amp::FusedParamState::exp_avg},
                                                {"exp_avg_sq", &amp::FusedParamState::exp_avg_sq},
                                                {"master", &amp::FusedParamState::master}};
/// The name of the count of steps beside them.
inline constexpr const char* kStepName = "step";
/// Null where none has the name.
const StateBuffer* find_buffer(const std::string& name);
/// The type that the buffer has after a step of a parameter of this type; nothing where there is none.
std::optional<c10::ScalarType> type_of(const StateBuffer& buffer, const amp::FusedOptions& options,
                                       c10::ScalarType parameter);

const amp::FusedOptions& options_of(const amp::FusedOptimizer& optimizer, size_t group);
/// Null before the first step.
const amp::FusedParamState* state_of(const amp::FusedOptimizer& optimizer, const at::Tensor& parameter);
/// Made where it is not there.
amp::FusedParamState& made_state(amp::FusedOptimizer& optimizer, const at::Tensor& parameter);
/// The elements of a dense tensor in the order of its memory.
at::Tensor in_memory_order(const at::Tensor& tensor);

/// The pieces of the groups' parameters. Throws ulp::Error for a tensor that is no parameter of the model.
std::vector<Shard> make_shards(const DataParallel::State& parallel,
                               const std::vector<amp::FusedGroup>& groups);

/// An optimizer of the pieces, in groups as those of the whole parameters.
std::unique_ptr<amp::FusedOptimizer> optimizer_of(const std::vector<Shard>& shards,
                                                  const std::vector<amp::FusedGroup>& groups, uint64_t seed);

/// The group's options as the optimizer has them now.
void take_options(const amp::FusedOptimizer& optimizer, size_t index, amp::FusedGroup& group);

/// Fills the states of all ranks' pieces into an optimizer of the whole parameters; on ranks other than 0 it
/// stays empty. All ranks call it.
void gather_states(const DataParallel::State& parallel, const std::vector<Shard>& shards,
                   const amp::FusedOptimizer& pieces, amp::FusedOptimizer& whole);

/// Takes this rank's pieces, the options and the seed out of an optimizer of whole parameters.
void scatter_states(const std::vector<Shard>& shards, const amp::FusedOptimizer& whole,
                    amp::FusedOptimizer& pieces);

}  // namespace ulp::distributed
