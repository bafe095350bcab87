// Probabilistic knowledge transfer (Passalis and Tefas 2018, section 3).
#pragma once

#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp::distill {

/// KL(teacher || student) of the conditional probabilities of a sample given another: p is (cos + 1) / 2 of
/// the flattened values (N, ...), each row of the N x N matrix divided by its sum. As in the authors' code a
/// sample is its own neighbour, logarithms are of p + 1e-7, and the result is the mean over all N^2 elements,
/// not their sum. Shapes may differ behind the first axis.
class ULP_API Pkt : public FloatLoss {
 public:
  Pkt() : FloatLoss("pkt") {}

 protected:
  at::Tensor compute(const LossInput& input) override;
};

}  // namespace ulp::distill
