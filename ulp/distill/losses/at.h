// Attention transfer (Zagoruyko and Komodakis 2017, section 3.1).
#pragma once

#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp::distill {

/// The mean over samples and places of (Q_s - Q_t)^2, where Q is the map mean_c F^2 of the features F (N,
/// C, H, W) as a vector of length 1. Numbers of channels may differ. Where heights or widths differ, the
/// features of the larger one are averaged down to the smaller one's (adaptive pooling), as RepDistiller
/// does. The paper sums over places and takes the root, so that its weights are others.
class ULP_API AttentionTransfer : public FloatLoss {
 public:
  AttentionTransfer() : FloatLoss("at") {}

 protected:
  at::Tensor compute(const LossInput& input) override;
};

}  // namespace ulp::distill
