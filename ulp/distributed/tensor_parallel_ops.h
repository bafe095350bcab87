// The collectives of tensor parallel layers, with derivatives (Shoeybi et al., arXiv:1909.08053). Every rank
// runs the same calls in the same order, forward and backward.
//
//   // Two layers, the first cut by outputs, the second by inputs: one sum in forward, one in backward.
//   auto h = torch::gelu(torch::linear(distributed::enter_ranks(x, group), w1_part, b1_part));
//   auto y = distributed::sum_over_ranks(torch::linear(h, w2_part), group) + b2;
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "ulp/base/export.h"
#include "ulp/distributed/process_group.h"
#include "ulp/distributed/split.h"

namespace ulp::distributed {

/// `x`, which all ranks have, for ranks that do different things with it: its gradient is the sum of theirs.
ULP_API at::Tensor enter_ranks(const at::Tensor& x, const std::shared_ptr<ProcessGroup>& group);

/// The sum of the ranks' parts; each of them gets the gradient of the sum, which all ranks have.
ULP_API at::Tensor sum_over_ranks(const at::Tensor& part, const std::shared_ptr<ProcessGroup>& group);

/// The whole of which each rank has a part in the last dimension, for ranks that do the same with it; the part gets its
/// part of the gradient. `split.dim` is not looked at. Throws ulp::Error for a part of another size.
ULP_API at::Tensor gather_from_ranks(const at::Tensor& part, const Split& split,
                                     const std::shared_ptr<ProcessGroup>& group);

/// Mean cross-entropy in nats of logits (..., classes) of which each rank has a part in the last dimension, against
/// classes (...), int64, which all ranks have; those that are -100 do not count. Computed in fp32; the logits stay where
/// they are: two numbers a row go between the ranks. Throws ulp::Error for a part of another size, for other targets,
/// and when no row counts.
ULP_API at::Tensor split_cross_entropy(const at::Tensor& part, const at::Tensor& targets, const Split& split,
                                       const std::shared_ptr<ProcessGroup>& group);

}  // namespace ulp::distributed
