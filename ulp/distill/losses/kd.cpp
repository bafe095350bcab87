#include "ulp/distill/losses/kd.h"

#include <ATen/ATen.h>

#include "ulp/base/fields.h"
#include "ulp/distill/losses/parts.h"

namespace ulp::distill {

void KdOptions::visit_fields(FieldVisitor& visit) {
  visit({.name = "T", .help = "Temperature", .min = 0, .above_min = true, .below_max = true}, temperature);
}

Kd::Kd(const KdOptions& options, const std::string& name) : FloatLoss(name), options_(options) {
  check_limits(where(), options_);
}

bool Kd::set_temperature(double temperature) {
  options_.temperature = temperature;
  return true;
}

at::Tensor Kd::compute(const LossInput& input) {
  require_classes(input);
  const double t = options_.temperature;
  return kl_divergence(log_probabilities(input.teacher[0], t), log_probabilities(input.student[0], t))
             .mean() *
         (t * t);
}

}  // namespace ulp::distill
