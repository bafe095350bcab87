// What every transport asks of the tensors and ranks that it is given; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

namespace ulp::distributed {

/// Throws ulp::Error unless the tensor is dense in memory.
void check_tensor(const char* where, const at::Tensor& tensor);
/// Throws ulp::Error unless `whole` is as large as `size` of `part`, of the same type, both contiguous.
void check_parts(const char* where, const at::Tensor& part, const at::Tensor& whole, int size);
/// Throws ulp::Error unless it is one of the ranks 0 to size - 1.
void check_rank(const char* where, int rank, int size);

}  // namespace ulp::distributed
