#include "ulp/distill/losses/cosine.h"

#include <ATen/ATen.h>

namespace ulp::distill {

at::Tensor Cosine::compute(const LossInput& input) {
  require_dims(input, 2, 4, "(N, D), (N, T, D) or (N, C, H, W)");
  require_same_shape(input);
  const at::Tensor& student = input.student[0];
  const int64_t axis = student.dim() == 4 ? 1 : -1;
  return 1 - at::cosine_similarity(student, input.teacher[0], axis).mean();
}

}  // namespace ulp::distill
