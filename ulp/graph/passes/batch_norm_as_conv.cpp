#include <torch/utils.h>

#include "ulp/graph/passes/rewrite.h"

namespace ulp::graph {

namespace {

/// gamma / sqrt(var + eps) x + beta - gamma mean / sqrt(var + eps). Returns what stands in the way.
std::string rewrite_batch_norm(Graph& graph, Node& norm) {
  const at::NoGradGuard no_grad;
  const int64_t dimensions = rank(norm.arg("input"));
  if (dimensions < 2 || dimensions > 5) return "its input is not known to have 2 to 5 dimensions";
  const Argument& training = norm.arg("training");
  if (training.kind == Argument::Kind::literal && training.literal.toBool())
    return "it normalizes by the batch's own statistics in eval mode too";
  const at::Tensor mean = stored_tensor(graph, norm.arg("running_mean"));
  const at::Tensor var = stored_tensor(graph, norm.arg("running_var"));
  if (!mean.defined() || !var.defined()) return "it has no running statistics";
  const at::Tensor gamma = stored_tensor(graph, norm.arg("weight")),
                   beta = stored_tensor(graph, norm.arg("bias"));
  // In double: the result is rounded once, as if the formula had been exact.
  at::Tensor scale = 1 / (var.to(at::kDouble) + norm.arg("eps").literal.toDouble()).sqrt();
  if (gamma.defined()) scale = scale * gamma.to(at::kDouble);
  at::Tensor shift = -mean.to(at::kDouble) * scale;
  if (beta.defined()) shift = shift + beta.to(at::kDouble);

  const std::string statistics = norm.arg("running_mean").value->producer->target();
  const std::string path = statistics.substr(0, statistics.rfind('.') + 1);
  const bool rows = dimensions == 2;
  std::vector<int64_t> shape(rows ? 1 : static_cast<size_t>(dimensions), 1);
  shape[0] = scale.numel();
  Value* weight = store_parameter(graph, path + "scale", scale.reshape(shape).to(mean.scalar_type()));
  Value* bias = store_parameter(graph, path + "shift", shift.to(mean.scalar_type()));
  if (rows) {
    Node* product = graph.call("aten::mul.Tensor", {norm.arg("input"), weight}, &norm);
    product->scope = norm.scope;
    product->output()->meta = norm.output()->meta;
    graph.retarget(&norm, "aten::add.Tensor", {product->output(), bias});
    return "";
  }
  const auto axes = static_cast<size_t>(dimensions) - 2;
  const Argument ones = c10::IValue(std::vector<int64_t>(axes, 1));
  const Argument zeros = c10::IValue(std::vector<int64_t>(axes, 0));
  graph.retarget(&norm, "aten::conv" + std::to_string(axes) + "d",
                 {norm.arg("input"), weight, bias, ones, zeros, ones, c10::IValue(shape[0])});
  return "";
}

}  // namespace

PassReport batch_norm_as_conv(Graph& graph) {
  return rewrite_each(graph, "batch_norm_as_conv", "aten::batch_norm",
                      [&](Node& norm) { return rewrite_batch_norm(graph, norm); });
}

}  // namespace ulp::graph
