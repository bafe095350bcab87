#include "ulp/quant/qat/batch_norm_state.h"

#include <torch/types.h>

#include "ulp/quant/scheme/quantizer.h"

namespace ulp::quant {

using graph::Argument;
using graph::Node;

at::Tensor BatchNormState::normalize(const at::Tensor& x, bool batch_statistics) const {
  if (batch_statistics && counter.defined()) at::Tensor(counter).add_(1);
  return at::batch_norm(x, gamma, beta, mean, var, batch_statistics, momentum, eps, /*cudnn_enabled=*/true);
}

at::Tensor BatchNormState::deviation() const {
  return (var + eps).sqrt();
}

at::Tensor BatchNormState::factor() const {
  return gamma.defined() ? gamma / deviation() : deviation().reciprocal();
}

bool is_freezable(const graph::Graph& graph, const Node& norm) {
  const Argument& training = norm.arg("training");
  const auto stored = [&](const char* name) {
    return norm.arg(name).is_value() && graph.attribute_tensor(norm.arg(name).value).defined();
  };
  return training.kind == Argument::Kind::training && !training.inverted && stored("running_mean") &&
         stored("running_var");
}

namespace {

// Removes the nodes that count the batches of the norm with this running mean; its counter, if there is one.
at::Tensor take_counter(graph::Graph& graph, const std::string& running_mean) {
  const std::string name = running_mean.substr(0, running_mean.rfind('.') + 1) + "num_batches_tracked";
  if (!graph.find_attribute(name)) return {};
  std::vector<Node*> counting;
  for (Node* user : graph.users(graph.attribute(name))) {
    if (user->train_only && graph.users(user->output()).empty()) counting.push_back(user);
  }
  for (Node* node : counting) graph.erase(node);
  return counting.empty() ? at::Tensor() : graph.find_attribute(name)->tensor;
}

}  // namespace

BatchNormState take_batch_norm(graph::Graph& graph, const Node& norm) {
  const auto tensor = [&](const char* name) {
    return norm.arg(name).is_value() ? graph.attribute_tensor(norm.arg(name).value) : at::Tensor();
  };
  return {.gamma = tensor("weight"),
          .beta = tensor("bias"),
          .mean = tensor("running_mean"),
          .var = tensor("running_var"),
          .counter = take_counter(graph, norm.arg("running_mean").value->producer->target()),
          .momentum = norm.arg("momentum").literal.toDouble(),
          .eps = norm.arg("eps").literal.toDouble()};
}

at::Tensor FreezableBatchNorm::forward(const at::Tensor& x) {
  return norm_.normalize(x, is_training() && !state_->batch_norm_frozen);
}

}  // namespace ulp::quant
