#include "ulp/distill/losses/at.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ulp/distill/losses/parts.h"

namespace ulp::distill {

namespace {

at::Tensor attention(const at::Tensor& features, int64_t height, int64_t width) {
  const bool fits = features.size(2) == height && features.size(3) == width;
  const at::Tensor pooled = fits ? features : at::adaptive_avg_pool2d(features, {height, width});
  return normalized_rows(pooled.square().mean(1));
}

}  // namespace

at::Tensor AttentionTransfer::compute(const LossInput& input) {
  require_dims(input, 4, 4, "(N, C, H, W)");
  const at::Tensor &student = input.student[0], &teacher = input.teacher[0];
  const int64_t height = std::min(student.size(2), teacher.size(2));
  const int64_t width = std::min(student.size(3), teacher.size(3));
  return at::mse_loss(attention(student, height, width), attention(teacher, height, width));
}

}  // namespace ulp::distill
