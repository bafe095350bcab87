// Distillation of logits (Hinton, Vinyals, Dean 2015, section 2).
#pragma once

#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp {
class FieldVisitor;
}

namespace ulp::distill {

/// Options of Kd.
struct ULP_API KdOptions {
  double temperature = 4;  ///< what logits are divided by, > 0
  void visit_fields(FieldVisitor& visit);
};

/// T^2 KL(softmax(t / T) || softmax(s / T)) of logits t and s (N, C) or (N, T, C), the mean over all rows.
/// With the factor T^2 gradients keep their size when T changes; for large T the gradient of a row is its
/// centred difference of logits over C, times 1 / rows. With T = 1 it is the loss of deep mutual learning
/// (Zhang et al. 2018, eq. 5).
class ULP_API Kd : public FloatLoss {
 public:
  explicit Kd(const KdOptions& options = {}, const std::string& name = "kd");

  bool set_temperature(double temperature) override;

 protected:
  at::Tensor compute(const LossInput& input) override;

 private:
  KdOptions options_;
};

}  // namespace ulp::distill
