// Shared by the tests of compiled steps: networks as functions of parameters, so that the same function runs in float64.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/train/compile/compiled_step.h"
#include "ulp/train/compile/partition.h"

namespace ulp::test {

using train::CompiledStep;
using train::LossFunction;

using Tensors = std::vector<at::Tensor>;
/// A network: its result from parameters and inputs.
using Function = std::function<at::Tensor(const Tensors& parameters, const Tensors& inputs)>;

/// A tensor of normal numbers.
inline at::Tensor normal(at::IntArrayRef sizes) {
  return torch::randn(sizes);
}

/// A module around a function.
struct FunctionNet : torch::nn::Module {
  explicit FunctionNet(const Tensors& values) {
    for (size_t i = 0; i < values.size(); ++i)
      parameters_in_order.push_back(register_parameter("p" + std::to_string(i), values[i].clone()));
  }
  Tensors parameters_in_order;
};

inline std::shared_ptr<graph::GraphModule> capture_function(FunctionNet& net, const Function& function,
                                                            const Tensors& inputs) {
  const auto graph = graph::capture(
      net, [&](const Tensors& given) { return c10::IValue(function(net.parameters_in_order, given)); },
      inputs, {.far_sizes = false});  // far sizes take most of a test's time
  graph->train();
  return graph;
}

inline at::Tensor torch_loss(const LossFunction& loss, const at::Tensor& result, const at::Tensor& targets) {
  namespace F = torch::nn::functional;
  using Kind = LossFunction::Kind;
  const bool mean = loss.mean;
  switch (loss.kind) {
    case Kind::none:
      return result;
    case Kind::mse:
      return F::mse_loss(result, targets,
                         mean ? F::MSELossFuncOptions(torch::kMean) : F::MSELossFuncOptions(torch::kSum));
    case Kind::l1:
      return F::l1_loss(result, targets,
                        mean ? F::L1LossFuncOptions(torch::kMean) : F::L1LossFuncOptions(torch::kSum));
    case Kind::smooth_l1:
      return F::smooth_l1_loss(
          result, targets,
          mean ? F::SmoothL1LossFuncOptions(torch::kMean) : F::SmoothL1LossFuncOptions(torch::kSum),
          loss.beta);
    case Kind::huber:
      return F::huber_loss(
          result, targets,
          (mean ? F::HuberLossFuncOptions(torch::kMean) : F::HuberLossFuncOptions(torch::kSum))
              .delta(loss.beta));
    case Kind::cross_entropy:
    case Kind::weighted_cross_entropy:
      return F::cross_entropy(result, targets,
                              mean ? F::CrossEntropyFuncOptions().reduction(torch::kMean)
                                   : F::CrossEntropyFuncOptions().reduction(torch::kSum));
    case Kind::bce_logits:
      return F::binary_cross_entropy_with_logits(
          result, targets,
          mean ? F::BinaryCrossEntropyWithLogitsFuncOptions().reduction(torch::kMean)
               : F::BinaryCrossEntropyWithLogitsFuncOptions().reduction(torch::kSum));
  }
  return {};
}

inline at::Tensor widened(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point() ? tensor.detach().to(torch::kDouble) : tensor;
}

/// Instructions are cut into as many pieces as they can be while it lives.
class FinePieces {
 public:
  FinePieces() { train::compiled::set_least_piece(0); }
  ~FinePieces() { train::compiled::set_least_piece(-1); }
  FinePieces(const FinePieces&) = delete;
  FinePieces& operator=(const FinePieces&) = delete;
};

/// All bits that some steps on so many threads give: losses, gradients, parameters, the network's result. The
/// parameters are left as they were.
inline Tensors bits_of_steps(const std::shared_ptr<graph::GraphModule>& graph, const LossFunction& loss,
                             const Tensors& inputs, const at::Tensor& targets, train::CompileOptions options,
                             int threads) {
  const torch::NoGradGuard no_grad;
  Tensors before, made;
  for (const at::Tensor& parameter : graph->parameters()) before.push_back(parameter.clone());
  amp::FusedOptimizer optimizer(graph->parameters(), amp::AdamRule{.lr = 1e-3});
  options.threads = threads;
  CompiledStep step = train::compile(graph, loss, optimizer, options);
  for (int i = 0; i < 2; ++i) made.push_back(torch::full({}, step.step(inputs, targets)));
  for (size_t i = 0; i < before.size(); ++i) {
    at::Tensor parameter = graph->parameters()[i];
    made.push_back(parameter.clone());
    if (const at::Tensor gradient = step.find_gradient(parameter); gradient.defined())
      made.push_back(gradient.clone());
    parameter.copy_(before[i]);
  }
  return made;
}

inline void expect_same_bits(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(torch::equal(a[i].view(torch::kInt), b[i].view(torch::kInt))) << "tensor " << i;
}

/// The loss and the gradients of a compiled step beside those of LibTorch in float64, and on one thread
/// beside several. Each gradient is a chain of products and sums: as many rounding errors of at most 2^-24 as
/// numbers are summed on the way, times the largest gradient of its tensor; curves count for 16.
/// `more_terms`: what else is summed, pixels for example. `cancelled`: the size of the terms of gradients
/// that are nearly 0 in all, as those of a bias before batch norm.
inline void expect_gradients(const std::string& name, const Function& function, const Tensors& parameters,
                             const Tensors& inputs, const LossFunction& loss, const at::Tensor& targets = {},
                             double more_terms = 0, double cancelled = 0) {
  SCOPED_TRACE(name);
  FunctionNet net(parameters);
  const auto graph = capture_function(net, function, inputs);
  const Tensors all = graph->parameters();
  {
    const FinePieces fine;
    expect_same_bits(bits_of_steps(graph, loss, inputs, targets, {}, 1),
                     bits_of_steps(graph, loss, inputs, targets, {}, 3));
  }
  amp::FusedOptimizer optimizer(all, amp::SgdRule{.lr = 0});
  CompiledStep step = train::compile(graph, loss, optimizer);
  const float made = step.step(inputs, targets);

  Tensors wide, wide_inputs;
  double terms = 64 + more_terms;
  for (const at::Tensor& parameter : net.parameters_in_order) {
    wide.push_back(widened(parameter).requires_grad_());
    for (const int64_t size : parameter.sizes()) terms += static_cast<double>(size);
    terms += 16;
  }
  for (const at::Tensor& input : inputs) {
    wide_inputs.push_back(widened(input));
    terms += static_cast<double>(input.size(0));
  }
  const at::Tensor exact = torch_loss(loss, function(wide, wide_inputs), widened(targets));
  exact.backward();
  const double bound = std::ldexp(terms, -24);
  EXPECT_NEAR(double{made}, exact.item<double>(), bound * (1 + std::fabs(exact.item<double>())));
  EXPECT_EQ(made, step.loss());
  for (size_t i = 0; i < wide.size(); ++i) {
    const at::Tensor expected = wide[i].grad();
    const auto in_graph = std::ranges::find_if(
        all, [&](const at::Tensor& one) { return one.data_ptr() == net.parameters_in_order[i].data_ptr(); });
    ASSERT_NE(in_graph, all.end());
    if (!expected.defined()) continue;
    const at::Tensor gradient = step.gradient(*in_graph);
    ASSERT_EQ(gradient.sizes(), expected.sizes());
    const double largest = std::max(expected.abs().max().item<double>(), cancelled);
    const double error = (gradient.to(torch::kDouble) - expected).abs().max().item<double>();
    EXPECT_LE(error, bound * largest)
        << "parameter " << i << " of sizes " << expected.sizes() << ", largest " << largest;
    EXPECT_FALSE(in_graph->grad().defined()) << "LibTorch's gradients are left alone";
  }
}

}  // namespace ulp::test
