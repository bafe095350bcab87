#include "ulp/distill/losses/hard.h"

#include <ATen/ATen.h>

namespace ulp::distill {

at::Tensor Hard::compute(const LossInput& input) {
  require_classes(input);
  return at::cross_entropy_loss(input.student[0].flatten(0, -2), input.teacher[0].flatten(0, -2).argmax(1));
}

}  // namespace ulp::distill
