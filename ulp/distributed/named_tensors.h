// The tensors of a module that a file would hold, and who may gather them; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/distributed/process_group.h"

namespace ulp::distributed {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Parameters, then buffers.
inline NamedTensors named_tensors(const torch::nn::Module& module) {
  NamedTensors found;
  for (const auto& one : module.named_parameters()) found.emplace_back(one.key(), one.value());
  for (const auto& one : module.named_buffers()) found.emplace_back(one.key(), one.value());
  return found;
}

/// Throws ulp::Error unless rank 0 alone has a model to gather into.
inline void check_gathers_on_root(const char* where, const ProcessGroup& group,
                                  const torch::nn::Module* whole) {
  if ((whole != nullptr) != (group.rank() == 0))
    fail(where, "expected a model on rank 0 and null on the others, got ", whole != nullptr ? "one" : "null",
         " on rank ", group.rank());
}

}  // namespace ulp::distributed
