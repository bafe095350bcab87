// What several losses compute. Internal.
#pragma once

#include <ATen/core/Tensor.h>

namespace ulp::distill {

/// KL(p || q) of each row, over the last axis, from log-probabilities.
at::Tensor kl_divergence(const at::Tensor& log_p, const at::Tensor& log_q);

/// log softmax(logits / temperature) over the last axis.
at::Tensor log_probabilities(const at::Tensor& logits, double temperature = 1);

/// (N, ...) as (N, D), each row divided by its Euclidean norm; a row of zeros stays one.
at::Tensor normalized_rows(const at::Tensor& values);

}  // namespace ulp::distill
