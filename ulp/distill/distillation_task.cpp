#include "ulp/distill/distillation_task.h"

#include <torch/types.h>

#include "ulp/base/error.h"

namespace ulp::distill {

DistillationTask::~DistillationTask() = default;

at::Tensor labelled_cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  if (!targets.defined() || logits.dim() != targets.dim() + 1 ||
      logits.sizes().slice(0, static_cast<size_t>(targets.dim())) != targets.sizes()) {
    fail("distill.labelled_cross_entropy", "expected logits (..., classes) for targets (...), got ",
         logits.sizes(), " for ", targets.defined() ? c10::str(targets.sizes()) : "none");
  }
  const at::Tensor rows = logits.flatten(0, -2).to(torch::kFloat), classes = targets.flatten();
  const at::Tensor sum = at::cross_entropy_loss(rows, classes, {}, at::Reduction::Sum, kUnlabelled);
  return sum / at::clamp_min(at::sum(classes.ne(kUnlabelled)), 1);
}

}  // namespace ulp::distill
