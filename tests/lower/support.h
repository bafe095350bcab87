// What the tests of this room share: capturing, bounds, and a plan as text.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/graph/graph_module.h"
#include "ulp/runtime/engine/engine.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::test {

using Body = std::function<at::Tensor(const at::Tensor&)>;

/// A root module with a forward of any kind, for small graphs.
struct Net : torch::nn::Module {
  Body body;
  at::Tensor forward(at::Tensor x) { return body(x); }
  /// Registers a layer and returns it.
  template <typename Holder>
  Holder add(const std::string& name, Holder layer) {
    return register_module(name, layer);
  }
};

/// Batch norms get running statistics and parameters that matter when folded.
void randomize_batch_norms(torch::nn::Module& model);

/// Captured in eval mode.
template <typename Model>
std::shared_ptr<graph::GraphModule> captured(std::shared_ptr<Model> model, const at::Tensor& example);

/// The graph's values by name for one input: the tensor every node gave.
std::map<std::string, at::Tensor> trace_values(const graph::GraphModule& module, const at::Tensor& input);

/// One step a line: "conv conv1 (x.f32.nhwc, r) relu -> f32". With `fields` false only ops and names.
std::string listing(const runtime::Plan& plan);

/// What a step ends in; none for an op without the attribute.
runtime::Activation activation_of(const runtime::Step& step);

/// The plan that holds only this step.
runtime::Plan only_step(const runtime::Plan& plan, size_t step);

/// Runs the plan on normal numbers times `spread`, at three batch sizes and on every instruction set.
void each_run(const runtime::Plan& plan, std::vector<int64_t> item, double spread,
              const std::function<void(const at::Tensor& x, const at::Tensor& got)>& check);

/// Largest |a - b| as a share of the largest |b|.
double relative_error(const at::Tensor& a, const at::Tensor& b);

/// A bound for that in a float plan: every compute step adds rounding errors of size epsilon that grow as the
/// square root of the number of products; `safety` covers the largest of many elements.
double rounding_bound(const runtime::Plan& plan, double product_epsilon, double result_epsilon);

constexpr double kF32 = 0x1p-24;
constexpr double kBF16 = 0x1p-9;

}  // namespace ulp::test

#include "ulp/graph/capture/capture.h"

namespace ulp::test {
template <typename Model>
std::shared_ptr<graph::GraphModule> captured(std::shared_ptr<Model> model, const at::Tensor& example) {
  model->eval();
  const torch::NoGradGuard no_grad;
  auto result = capture(model, {example});
  result->eval();
  return result;
}

/// A network without layers.
inline std::shared_ptr<graph::GraphModule> captured_body(const Body& body, const at::Tensor& example) {
  auto net = std::make_shared<Net>();
  net->body = body;
  return captured(net, example);
}
}  // namespace ulp::test
