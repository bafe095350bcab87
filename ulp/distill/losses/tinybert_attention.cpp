#include "ulp/distill/losses/tinybert_attention.h"

#include <ATen/ATen.h>

namespace ulp::distill {

namespace {

constexpr double kMasked = -100;

at::Tensor without_masked(const at::Tensor& scores) {
  return scores.masked_fill(scores <= kMasked, 0);
}

}  // namespace

at::Tensor TinyBertAttention::compute(const LossInput& input) {
  require_dims(input, 3, 4, "(N, heads, T, T) or (N * heads, T, T)");
  require_same_shape(input);
  return at::mse_loss(without_masked(input.student[0]), without_masked(input.teacher[0]));
}

}  // namespace ulp::distill
