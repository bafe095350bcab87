#include "ulp/amp/optimizer/graphed_step.h"

#include <ATen/Functions.h>

#include "ulp/amp/optimizer/fused_plan.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {
constexpr const char* kGraphedWhere = "amp.GraphedStep";
}  // namespace

GraphedStep::GraphedStep(FusedOptimizer& optimizer, CapturableStep& update, Loss loss, int warm_up,
                         std::unique_ptr<GraphRecorder> graph)
    : optimizer_(optimizer),
      update_(update),
      loss_function_(std::move(loss)),
      warm_up_(warm_up),
      graph_(graph ? std::move(graph) : make_cuda_graph(device_of(optimizer))) {
  if (warm_up < 1) fail(kGraphedWhere, "expected at least one step of warm-up, got ", warm_up);
}

void GraphedStep::take(const std::vector<at::Tensor>& inputs) {
  const at::NoGradGuard no_grad;
  if (inputs_.empty()) {
    for (const at::Tensor& input : inputs) {
      if (!input.defined()) fail(kGraphedWhere, "expected tensors, got an undefined one");
      inputs_.push_back(input.detach().clone());
    }
    return;
  }
  if (inputs.size() != inputs_.size())
    fail(kGraphedWhere, "expected ", inputs_.size(), " inputs, got ", inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& fixed = inputs_[i];
    if (!inputs[i].defined() || inputs[i].sizes() != fixed.sizes() ||
        inputs[i].scalar_type() != fixed.scalar_type() || inputs[i].device() != fixed.device()) {
      fail(kGraphedWhere, "expected input ", i, " as in the first step, ", fixed.dtype(), ' ', fixed.sizes(),
           " on ", fixed.device(), ", got ",
           inputs[i].defined() ? c10::toString(inputs[i].scalar_type()) : std::string("an undefined tensor"),
           ' ', inputs[i].defined() ? inputs[i].sizes() : at::IntArrayRef());
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) inputs_[i].copy_(inputs[i], /*non_blocking=*/true);
}

void GraphedStep::work() {
  const at::Tensor loss = loss_function_(inputs_);
  update_.scale(loss).backward();
  update_.step();
  loss_ = loss.detach();
}

at::Tensor GraphedStep::run(const std::vector<at::Tensor>& inputs) {
  take(inputs);
  if (!captured_)
    optimizer_.zero_grad(/*set_to_none=*/true);  // backward makes them, in the graph's own memory there
  if (runs_ < warm_up_) {
    graph_->warm_up([this] { work(); });
    ++runs_;
    return loss_;
  }
  if (!captured_) {
    update_.begin_capture();
    try {
      graph_->capture([this] { work(); });
    } catch (...) {
      update_.end_capture();
      throw;
    }
    update_.end_capture();
    captured_ = true;
  } else {
    update_.refresh();
  }
  graph_->replay();
  return loss_;
}

}  // namespace ulp::amp
