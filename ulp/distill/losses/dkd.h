// Decoupled distillation of logits (Zhao et al. 2022, section 3.2).
#pragma once

#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp {
class FieldVisitor;
}

namespace ulp::distill {

/// Options of Dkd.
struct ULP_API DkdOptions {
  double alpha = 1;        ///< weight of the target class against the others, >= 0
  double beta = 8;         ///< weight of the other classes among themselves, >= 0
  double temperature = 4;  ///< what logits are divided by, > 0
  double warmup = 20;      ///< epochs in which the loss grows linearly from 0, as in the authors' code
  void visit_fields(FieldVisitor& visit);
};

/// min(progress / warmup, 1) T^2 (alpha TCKD + beta NCKD) of logits (N, C) or (N, T, C) with targets (N) or
/// (N, T), the mean over the rows with a label. TCKD is KL(teacher || student) of the two probabilities target and not
/// target; NCKD that of the other classes with the target left out. C is 2 or more. The authors' code
/// leaves the target out by a logit lower by 1000, which 16 bits cannot hold next to large logits; here it
/// is cut out.
class ULP_API Dkd : public FloatLoss {
 public:
  explicit Dkd(const DkdOptions& options = {});

  bool set_temperature(double temperature) override;

 protected:
  at::Tensor compute(const LossInput& input) override;

 private:
  at::Tensor targets_of(const LossInput& input) const;

  DkdOptions options_;
};

}  // namespace ulp::distill
