// Mean squared differences: of features (FitNets' hints, Romero et al. 2015, eq. 3) and of logits (Ba and
// Caruana 2014).
#pragma once

#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp::distill {

/// The values that are compared.
enum class MseOf : uint8_t {
  features,  ///< "mse": any shape (N, ...); the caller's adapter makes them one
  logits,    ///< "logits": (N, C) or (N, T, C), which no adapter may change
};

/// mean((s - t)^2) over all elements of values of one shape. FitNets halve it.
class ULP_API Mse : public FloatLoss {
 public:
  explicit Mse(MseOf of = MseOf::features);
  bool same_width() const override { return of_ == MseOf::features; }

 protected:
  at::Tensor compute(const LossInput& input) override;

 private:
  MseOf of_;
};

}  // namespace ulp::distill
