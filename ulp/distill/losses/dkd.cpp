#include "ulp/distill/losses/dkd.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/distill/distillation_task.h"
#include "ulp/distill/losses/parts.h"

namespace ulp::distill {

namespace {

/// Log-probabilities of rows of logits.
struct Decoupled {
  at::Tensor target;  ///< (R, 2): target, not target
  at::Tensor others;  ///< (R, C - 1): of the other classes, summing to 1 among themselves
};

Decoupled decouple(const at::Tensor& logits, const at::Tensor& targets, double temperature) {
  const at::Tensor rows = logits.flatten(0, -2) / temperature;
  const at::Tensor index = targets.unsqueeze(1);
  const at::Tensor column = at::arange(rows.size(1) - 1, targets.options()).unsqueeze(0);
  const at::Tensor others = rows.gather(1, column + (column >= index));
  const at::Tensor both = at::cat({rows.gather(1, index), others.logsumexp(1, /*keepdim=*/true)}, 1);
  return {both.log_softmax(1), others.log_softmax(1)};
}

}  // namespace

void DkdOptions::visit_fields(FieldVisitor& visit) {
  visit({.name = "alpha", .help = "Weight of the target class", .min = 0, .below_max = true}, alpha);
  visit({.name = "beta", .help = "Weight of the other classes", .min = 0, .below_max = true}, beta);
  visit({.name = "T", .help = "Temperature", .min = 0, .above_min = true, .below_max = true}, temperature);
  visit({.name = "warmup", .help = "Epochs in which the loss grows from 0", .min = 0, .below_max = true},
        warmup);
}

Dkd::Dkd(const DkdOptions& options) : FloatLoss("dkd"), options_(options) {
  check_limits(where(), options_);
}

at::Tensor Dkd::targets_of(const LossInput& input) const {
  const at::Tensor& logits = input.student[0];
  const auto shape = logits.sizes().slice(0, static_cast<size_t>(logits.dim() - 1));
  if (!input.targets.defined()) fail(where(), "expected targets, got none");
  if (input.targets.scalar_type() != at::kLong || input.targets.sizes() != shape)
    fail(where(), "expected targets int64 of the shape ", shape, ", got ", input.targets.scalar_type(), " ",
         input.targets.sizes());
  const at::Tensor targets = input.targets.to(logits.device()).flatten();
  const auto [least, most] = at::aminmax(targets.masked_fill(targets == kUnlabelled, 0));
  if (least.item<int64_t>() < 0 || most.item<int64_t>() >= logits.size(-1))
    fail(where(), "expected targets in [0, ", logits.size(-1) - 1, "], got ", least.item<int64_t>(), " to ",
         most.item<int64_t>());
  return targets;
}

bool Dkd::set_temperature(double temperature) {
  options_.temperature = temperature;
  return true;
}

at::Tensor Dkd::compute(const LossInput& input) {
  require_classes(input);
  const at::Tensor given = targets_of(input), labelled = given != kUnlabelled;
  const at::Tensor targets = given.masked_fill(labelled.logical_not(), 0);
  const double t = options_.temperature;
  const Decoupled teacher = decouple(input.teacher[0], targets, t);
  const Decoupled student = decouple(input.student[0], targets, t);
  const at::Tensor rows = options_.alpha * kl_divergence(teacher.target, student.target) +
                          options_.beta * kl_divergence(teacher.others, student.others);
  const double growth = options_.warmup > 0 ? std::min(input.progress / options_.warmup, 1.0) : 1.0;
  return (rows * labelled).sum() / at::clamp_min(labelled.sum(), 1) * (growth * t * t);
}

}  // namespace ulp::distill
