#include "ulp/distill/losses/rkd.h"

#include <ATen/ATen.h>

#include "ulp/base/fields.h"

namespace ulp::distill {

namespace {

constexpr int64_t kDifferences = 2;  // at::cdist: from differences, not from products, which cancel

/// (N, N), distances divided by the mean of those above 0.
at::Tensor distances(const at::Tensor& rows) {
  const at::Tensor all = at::cdist(rows, rows, 2, kDifferences);
  const at::Tensor count = (all.detach() > 0).sum().clamp_min(1);
  const at::Tensor mean = all.sum() / count;
  return all / mean.masked_fill(mean == 0, 1);
}

/// (N, N, N): [i, j, k] is the cosine of the angle at i between j and k.
at::Tensor angles(const at::Tensor& rows) {
  const at::Tensor differences = rows.unsqueeze(0) - rows.unsqueeze(1);
  const at::Tensor norms = at::linalg_vector_norm(differences, 2, {2}, /*keepdim=*/true);
  const at::Tensor directions = differences / norms.masked_fill(norms == 0, 1);
  return directions.bmm(directions.transpose(1, 2));
}

}  // namespace

void RkdOptions::visit_fields(FieldVisitor& visit) {
  visit({.name = "distance", .help = "Weight of the distances", .min = 0, .below_max = true}, distance);
  visit({.name = "angle", .help = "Weight of the angles", .min = 0, .below_max = true}, angle);
}

Rkd::Rkd(const RkdOptions& options, const std::string& name) : FloatLoss(name), options_(options) {
  check_limits(where(), options_);
}

at::Tensor Rkd::compute(const LossInput& input) {
  require_dims(input, 2, 64, "(N, ...)");
  const at::Tensor student = input.student[0].flatten(1), teacher = input.teacher[0].flatten(1);
  at::Tensor loss = at::zeros({}, student.options());
  if (options_.distance > 0)
    loss = loss + options_.distance * at::smooth_l1_loss(distances(student), distances(teacher));
  if (options_.angle > 0) loss = loss + options_.angle * at::smooth_l1_loss(angles(student), angles(teacher));
  return loss;
}

}  // namespace ulp::distill
