#include "ulp/distill/losses/mse.h"

#include <ATen/ATen.h>

namespace ulp::distill {

Mse::Mse(MseOf of) : FloatLoss(of == MseOf::features ? "mse" : "logits"), of_(of) {}

at::Tensor Mse::compute(const LossInput& input) {
  if (of_ == MseOf::logits)
    require_logits(input);
  else
    require_same_shape(input);
  return at::mse_loss(input.student[0], input.teacher[0]);
}

}  // namespace ulp::distill
