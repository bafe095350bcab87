#include "ulp/distill/losses/pkt.h"

#include <ATen/ATen.h>

#include "ulp/distill/losses/parts.h"

namespace ulp::distill {

namespace {

constexpr double kEpsilon = 1e-7;

at::Tensor probabilities(const at::Tensor& values) {
  const at::Tensor rows = normalized_rows(values);
  const at::Tensor similarity = (rows.mm(rows.t()) + 1) / 2;
  return similarity / similarity.sum(1, /*keepdim=*/true);
}

}  // namespace

at::Tensor Pkt::compute(const LossInput& input) {
  require_dims(input, 2, 64, "(N, ...)");
  const at::Tensor student = probabilities(input.student[0]), teacher = probabilities(input.teacher[0]);
  const at::Tensor ratio = (teacher + kEpsilon) / (student + kEpsilon);
  return (teacher * ratio.log() + (student - teacher))
      .mean();  // rows sum to 1: the difference is rounding alone
}

}  // namespace ulp::distill
