// The models of all ranks: that they are the same, and making their tensors the same; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/distributed/process_group.h"

namespace torch::nn {
class Module;
}

namespace ulp::distributed {

/// Throws ulp::Error on every rank unless names, types and sizes of parameters and buffers are those of rank
/// 0, and parameters that require gradients are the same.
void check_same_model(ProcessGroup& group, const torch::nn::Module& model);

/// `tensor` becomes that of rank 0, whatever its layout in memory.
void broadcast_tensor(ProcessGroup& group, const at::Tensor& tensor);
/// All parameters and buffers.
void broadcast_state(ProcessGroup& group, const torch::nn::Module& model);

}  // namespace ulp::distributed
