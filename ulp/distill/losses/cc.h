// Correlation congruence (Peng et al. 2019, sections 3.2 and 3.3).
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp {
class FieldVisitor;
}

namespace ulp::distill {

/// Options of CorrelationCongruence.
struct ULP_API CcOptions {
  double gamma = 0.4;  ///< of the Gaussian kernel, > 0
  int64_t order = 2;   ///< the highest power of the kernel's Taylor series, >= 1
  void visit_fields(FieldVisitor& visit);
};

/// ||K_s - K_t||^2 / N^2 of values (N, ...), where K is the Gaussian kernel exp(-gamma |x - y|^2) of the
/// flattened values, each of length 1, by its Taylor series: the sum over p up to the order of exp(-2
/// gamma) (2 gamma)^p / p! (x . y)^p. Shapes may differ behind the first axis. RepDistiller's loss of this
/// name compares the products of neighbouring samples instead.
class ULP_API CorrelationCongruence : public FloatLoss {
 public:
  explicit CorrelationCongruence(const CcOptions& options = {});

 protected:
  at::Tensor compute(const LossInput& input) override;

 private:
  at::Tensor kernel(const at::Tensor& values) const;

  CcOptions options_;
};

}  // namespace ulp::distill
