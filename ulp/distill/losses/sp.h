// Similarity-preserving distillation (Tung and Mori 2019, section 3.1).
#pragma once

#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp::distill {

/// ||G_s - G_t||^2 / N^2 of values (N, ...), where G is F F' of the flattened features F with each row
/// divided by its norm. Shapes may differ behind the first axis.
class ULP_API SimilarityPreserving : public FloatLoss {
 public:
  SimilarityPreserving() : FloatLoss("sp") {}

 protected:
  at::Tensor compute(const LossInput& input) override;
};

}  // namespace ulp::distill
