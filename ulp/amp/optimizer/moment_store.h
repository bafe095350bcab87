// What MomentFormat is to the kernels; internal to the room.
#pragma once

#include "ulp/amp/optimizer/block_moments.h"
#include "ulp/amp/optimizer/state_memory.h"
#include "ulp/kernels/training/optimizer.h"

namespace ulp::amp {

/// How the kernels keep the moments of a parameter of so many elements.
kernels::MomentStore moment_store(MomentFormat moments, int64_t elements);
/// Blocks of so many elements; 0 where the store has none.
int64_t moment_block_count(kernels::MomentStore store, int64_t elements);
/// Makes the tensors of a moment, all zeros, on the host.
void make_moment(const MomentTensors& moment, kernels::MomentStore store, const at::Tensor& parameter,
                 const StateMemory& memory);

}  // namespace ulp::amp
