// Cross-entropy with the teacher's probabilities (TinyBERT, Jiao et al. 2020, eq. 10 with t = 1).
#pragma once

#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp::distill {

/// -sum softmax(t) log softmax(s) of logits (N, C) or (N, T, C), the mean over all rows. Its gradient is that
/// of kd with T = 1. TinyBERT's code takes the mean over classes, too, so that it is C times smaller there.
class ULP_API SoftCrossEntropy : public FloatLoss {
 public:
  SoftCrossEntropy() : FloatLoss("soft_cross_entropy") {}

 protected:
  at::Tensor compute(const LossInput& input) override;
};

}  // namespace ulp::distill
