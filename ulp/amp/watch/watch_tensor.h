// Tensors as the watch reads them: memory order, exponent counts, and places back in terms of indices.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ulp/kernels/training/exponent_stats.h"

namespace ulp::amp {

/// True for what has exponents to count: a defined real floating-point tensor that is strided or sparse.
bool is_countable(const at::Tensor& tensor);

/// The elements as one dense block of fp32, bf16, fp16 or fp64 on the CPU: the tensor itself where it is one,
/// in any order of dimensions; of a sparse tensor the values (its duplicates summed).
at::Tensor countable_block(const at::Tensor& tensor);

/// Counts of a block that countable_block() returned.
kernels::ExponentStats block_stats(const at::Tensor& block, uint64_t cut);

/// The index of the element at `offset` in the block's memory.
std::vector<int64_t> index_at(const at::Tensor& block, int64_t offset);
/// Its value.
double value_at(const at::Tensor& block, int64_t offset);

}  // namespace ulp::amp
