#include "ulp/prune/scores/movement.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/prune/masks/apply_mask.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/scores/score_parts.h"

namespace ulp::prune {
namespace {

constexpr const char* kMovementScoresWhere = "prune.MovementScores";

}  // namespace

MovementScores::MovementScores(std::shared_ptr<graph::GraphModule> module,
                               std::vector<std::string> parameters, const MovementOptions& options)
    : module_(std::move(module)), names_(std::move(parameters)), options_(options) {
  if (!module_) fail(kMovementScoresWhere, "expected a module, got null");
  if (!(options_.lr > 0)) fail(kMovementScoresWhere, "expected lr > 0, got ", options_.lr);
  if (!(options_.threshold >= 0 && options_.threshold < 1))
    fail(kMovementScoresWhere, "expected a threshold in [0, 1), got ", options_.threshold);
  if (!(options_.penalty >= 0)) fail(kMovementScoresWhere, "expected a penalty >= 0, got ", options_.penalty);
  for (const at::Tensor& each : parameters_of(*module_, names_))
    scores_.push_back(at::zeros(each.sizes(), at::kFloat));
}

void MovementScores::update(double scale) {
  const at::NoGradGuard no_grad;
  const Scores parameters = parameters_of(*module_, names_);
  double elements = 0;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (!parameters[i].grad().defined())
      fail(kMovementScoresWhere, "expected a gradient of '", names_[i],
           "', got none: update() comes after backward()");
    elements += static_cast<double>(parameters[i].numel());
  }
  const std::vector<ParameterMask> held = masks(module_->graph());
  for (const ParameterMask& mask : held) {
    for (const at::Tensor& parameter : parameters) {
      if (mask.dense.is_same(parameter) && !mask.dense_gradient)
        fail(kMovementScoresWhere, "expected a mask with dense_gradient for '", mask.parameter,
             "', got one without");
    }
  }
  const bool finite = std::ranges::all_of(
      parameters, [](const at::Tensor& each) { return each.grad().isfinite().all().item<bool>(); });
  for (size_t i = 0; finite && i < names_.size(); ++i) {
    const at::Tensor weight = parameters[i].detach().to(at::kFloat);
    at::Tensor change = parameters[i].grad().to(at::kFloat).div(scale) * weight;
    if (options_.soft && options_.penalty != 0) {
      const at::Tensor likely = at::sigmoid(scores_[i]);
      change.add_(likely * (1 - likely), options_.penalty / elements);
    }
    scores_[i].sub_(change, options_.lr);
  }
  for (const ParameterMask& mask : held) {
    if (!mask.dense_gradient || !mask.dense.grad().defined()) continue;
    mask.dense.grad().copy_(apply_mask(mask.dense.grad(), mask.bits));
  }
}

std::vector<at::Tensor> MovementScores::above_threshold() const {
  std::vector<at::Tensor> keep;
  for (const at::Tensor& each : scores_) keep.push_back(at::sigmoid(each) > options_.threshold);
  return keep;
}

void MovementScores::set_scores(const std::vector<at::Tensor>& scores) {
  if (scores.size() != scores_.size())
    fail(kMovementScoresWhere, "expected ", scores_.size(), " tensors, got ", scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i].sizes() != scores_[i].sizes())
      fail(kMovementScoresWhere, "expected sizes ", scores_[i].sizes(), " for '", names_[i], "', got ",
           scores[i].sizes());
  }
  for (size_t i = 0; i < scores.size(); ++i) scores_[i] = scores[i].detach().to(at::kFloat).clone();
}

}  // namespace ulp::prune
