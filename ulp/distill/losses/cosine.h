// The direction of hidden states (DistilBERT, Sanh et al. 2019, section 2).
#pragma once

#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp::distill {

/// The mean of 1 - cos(s, t) over all vectors: the last axis of (N, D) and (N, T, D), the channels of
/// (N, C, H, W). Both values have one shape.
class ULP_API Cosine : public FloatLoss {
 public:
  Cosine() : FloatLoss("cosine") {}
  bool same_width() const override { return true; }

 protected:
  at::Tensor compute(const LossInput& input) override;
};

}  // namespace ulp::distill
