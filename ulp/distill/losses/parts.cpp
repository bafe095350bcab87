#include "ulp/distill/losses/parts.h"

#include <ATen/ATen.h>

namespace ulp::distill {

at::Tensor kl_divergence(const at::Tensor& log_p, const at::Tensor& log_q) {
  // q - p sums to zero. With it an error common to a row's logarithms cancels, which matters where p is
  // near q.
  const at::Tensor p = log_p.exp();
  return (p * (log_p - log_q) + (log_q.exp() - p)).sum(-1);
}

at::Tensor log_probabilities(const at::Tensor& logits, double temperature) {
  return (temperature == 1 ? logits : logits / temperature).log_softmax(-1);
}

at::Tensor normalized_rows(const at::Tensor& values) {
  const at::Tensor rows = values.flatten(1);
  const at::Tensor norms = at::linalg_vector_norm(rows, 2, {1}, /*keepdim=*/true);
  return rows / norms.masked_fill(norms == 0, 1);
}

}  // namespace ulp::distill
