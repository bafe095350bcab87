#include "ulp/distill/losses/sp.h"

#include <ATen/ATen.h>

#include "ulp/distill/losses/parts.h"

namespace ulp::distill {

namespace {

at::Tensor similarity(const at::Tensor& values) {
  const at::Tensor rows = values.flatten(1);
  return normalized_rows(rows.mm(rows.t()));
}

}  // namespace

at::Tensor SimilarityPreserving::compute(const LossInput& input) {
  require_dims(input, 2, 64, "(N, ...)");
  return at::mse_loss(similarity(input.student[0]), similarity(input.teacher[0]));
}

}  // namespace ulp::distill
