#include "ulp/distill/losses/cc.h"

#include <ATen/ATen.h>

#include <cmath>

#include "ulp/base/fields.h"
#include "ulp/distill/losses/parts.h"

namespace ulp::distill {

void CcOptions::visit_fields(FieldVisitor& visit) {
  visit({.name = "gamma", .help = "Of the Gaussian kernel", .min = 0, .above_min = true, .below_max = true},
        gamma);
  visit({.name = "order", .help = "Highest power of the kernel's Taylor series", .min = 1, .max = 20}, order);
}

CorrelationCongruence::CorrelationCongruence(const CcOptions& options) : FloatLoss("cc"), options_(options) {
  check_limits(where(), options_);
}

at::Tensor CorrelationCongruence::kernel(const at::Tensor& values) const {
  const at::Tensor rows = normalized_rows(values);
  const at::Tensor product = rows.mm(rows.t());
  // Horner's rule on sum_p z^p / p! with z = 2 gamma product: 1 + z (1 + z / 2 (1 + ...)).
  at::Tensor series = at::ones_like(product);
  for (int64_t power = options_.order; power >= 1; --power)
    series = 1 + product * series * (2 * options_.gamma / static_cast<double>(power));
  return series * std::exp(-2 * options_.gamma);
}

at::Tensor CorrelationCongruence::compute(const LossInput& input) {
  require_dims(input, 2, 64, "(N, ...)");
  return at::mse_loss(kernel(input.student[0]), kernel(input.teacher[0]));
}

}  // namespace ulp::distill
