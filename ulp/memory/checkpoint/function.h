// Checkpointing of any function of tensors, for modules that are not captured.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::memory {

/// Tensors to tensors.
using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// The results of `function`, whose inner values are freed and computed again in the backward pass: it runs a
/// second time then, with the random state and the autocast of the first one, until it has saved what the
/// backward waits for. Gradients are those without checkpointing, bit for bit, also for tensors that the
/// function holds by itself. Nests. Semantics are those of torch.utils.checkpoint with use_reentrant=False.
///
/// The function must do the same work each time: it lives, with all that it holds, as long as the autograd
/// graph, and the state that it reads must be the same. What it writes besides is written twice, as the
/// running statistics of batch norms: a captured graph does that better (ulp/memory/checkpoint/checkpoint.h).
/// Without grad it simply runs. The backward throws ulp::Error when the second run saves fewer tensors, or
/// others by sizes or type.
ULP_API std::vector<at::Tensor> checkpoint(const TensorFunction& function,
                                           const std::vector<at::Tensor>& inputs);

/// Checkpoints a function of one tensor that gives one tensor.
///
///   y = ulp::memory::checkpoint([&](const torch::Tensor& x) { return block->forward(x); }, x);
template <std::invocable<const at::Tensor&> Function>
requires std::convertible_to<std::invoke_result_t<Function, const at::Tensor&>, at::Tensor> at::Tensor
checkpoint(Function function, const at::Tensor& input) {
  return checkpoint(
      TensorFunction([function = std::move(function)](const std::vector<at::Tensor>& inputs) mutable {
        return std::vector<at::Tensor>{function(inputs[0])};
      }),
      std::vector<at::Tensor>{input})[0];
}

}  // namespace ulp::memory
