// Relational distillation (Park et al. 2019, sections 3.2.1 and 3.2.2).
#pragma once

#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp {
class FieldVisitor;
}

namespace ulp::distill {

/// Options of Rkd.
struct ULP_API RkdOptions {
  double distance = 25;  ///< weight of the distances, >= 0
  double angle = 50;     ///< weight of the angles, >= 0
  void visit_fields(FieldVisitor& visit);
};

/// Compares how the samples of a batch (N, ...) lie to each other: distance * smooth L1 of the Euclidean
/// distances of pairs, divided by the mean of those above 0, + angle * smooth L1 of the cosines of the
/// angles of triples. The means are over all N^2 pairs and N^3 triples, equal members included, as in the
/// authors' code. Shapes may differ behind the first axis; angles need N^2 D numbers of memory. Samples
/// whose values are equal have the angle's cosine 0 and no gradient to each other. One sample alone gives
/// 0.
class ULP_API Rkd : public FloatLoss {
 public:
  explicit Rkd(const RkdOptions& options = {}, const std::string& name = "rkd");

 protected:
  at::Tensor compute(const LossInput& input) override;

 private:
  RkdOptions options_;
};

}  // namespace ulp::distill
