// Cross-entropy with the teacher's decision (DeiT's hard-label distillation, Touvron et al. 2021, section 4).
#pragma once

#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp::distill {

/// Cross-entropy of the student's logits (N, C) or (N, T, C) with the teacher's most probable class, the
/// first one where several are equal; the mean over all rows. Targets of the data are not read.
class ULP_API Hard : public FloatLoss {
 public:
  Hard() : FloatLoss("hard") {}

 protected:
  at::Tensor compute(const LossInput& input) override;
};

}  // namespace ulp::distill
