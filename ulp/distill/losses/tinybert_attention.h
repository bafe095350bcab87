// Attention scores of transformers (TinyBERT, Jiao et al. 2020, eq. 7).
#pragma once

#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp::distill {

/// mean((s - t)^2) over all elements of attention scores (N, heads, T, T) before the softmax, or (N * heads, T, T) where both
/// networks have them so. Scores of -100 and less are masked places and count as 0, as in the authors' code.
class ULP_API TinyBertAttention : public FloatLoss {
 public:
  TinyBertAttention() : FloatLoss("tinybert_attention") {}

 protected:
  at::Tensor compute(const LossInput& input) override;
};

}  // namespace ulp::distill
