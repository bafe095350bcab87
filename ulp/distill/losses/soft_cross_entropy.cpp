#include "ulp/distill/losses/soft_cross_entropy.h"

#include <ATen/ATen.h>

namespace ulp::distill {

at::Tensor SoftCrossEntropy::compute(const LossInput& input) {
  require_classes(input);
  return -(input.teacher[0].softmax(-1) * input.student[0].log_softmax(-1)).sum(-1).mean();
}

}  // namespace ulp::distill
