// Proves that a captured graph does what the model does, bit for bit.
#pragma once

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "error_of.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace ulp::test {

/// An autocast guard of the CPU, as a model may have one in forward.
class LowerAutocast {
 public:
  explicit LowerAutocast(at::ScalarType type) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, type);
  }
  ~LowerAutocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  LowerAutocast(const LowerAutocast&) = delete;
  LowerAutocast& operator=(const LowerAutocast&) = delete;
};

/// The networks are tiny: a team of threads would spend its time waking up.
inline const bool one_thread = (at::set_num_threads(1), true);

using Tensors = std::vector<at::Tensor>;
using Forward = std::function<c10::IValue(const Tensors&)>;

inline void flatten(const c10::IValue& value, Tensors& out) {
  if (value.isTensor()) {
    out.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const auto& item : value.toTupleRef().elements()) flatten(item, out);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) flatten(item, out);
  }
}

/// Equal bits: torch::equal would tell NaN from itself and +0 from nothing.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (torch::equal(a, b)) return true;
  return torch::equal(a.isnan(), b.isnan()) && torch::equal(a.nan_to_num(), b.nan_to_num());
}

class AutocastBf16 {
 public:
  explicit AutocastBf16(bool on) : on_(on) {
    if (!on) return;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~AutocastBf16() {
    if (!on_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }

 private:
  bool on_;
};

/// What a run leaves behind.
struct Outcome {
  Tensors outputs, gradients, buffers;
};

/// Named tensors of a torch::nn::Module or a torch::jit::Module.
struct Named {
  std::vector<std::pair<std::string, at::Tensor>> parameters, buffers;
};

inline Named named(const torch::nn::Module& module) {
  Named result;
  for (const auto& p : module.named_parameters()) result.parameters.emplace_back(p.key(), p.value());
  for (const auto& b : module.named_buffers()) result.buffers.emplace_back(b.key(), b.value());
  return result;
}

inline Outcome outcome(const Forward& forward, const Named& tensors, const Tensors& inputs, bool training,
                       bool autocast) {
  Tensors before;
  for (const auto& [name, buffer] : tensors.buffers) before.push_back(buffer.detach().clone());
  for (const auto& [name, parameter] : tensors.parameters) parameter.mutable_grad() = at::Tensor();
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().clone(at::MemoryFormat::Preserve));
    if (input.is_floating_point()) leaves.back().requires_grad_();
  }
  torch::manual_seed(11);
  Outcome result;
  {
    AutocastBf16 guard(autocast);
    Tensors fed;  // in-place ops on a leaf would be an error of the test's own making
    for (const at::Tensor& leaf : leaves) fed.push_back(leaf.is_floating_point() ? leaf * 1 : leaf);
    flatten(forward(fed), result.outputs);
  }
  if (training) {
    at::Tensor loss = torch::zeros({});
    for (const at::Tensor& output : result.outputs) {
      if (output.requires_grad()) loss = loss + (output.to(at::kFloat) * torch::randn(output.sizes())).sum();
    }
    if (loss.requires_grad()) loss.backward();
    for (const auto& [name, parameter] : tensors.parameters) result.gradients.push_back(parameter.grad());
    for (const at::Tensor& leaf : leaves) result.gradients.push_back(leaf.grad());
  }
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors.buffers.size(); ++i) {
    result.buffers.push_back(tensors.buffers[i].second.clone());
    tensors.buffers[i].second.copy_(before[i]);
  }
  return result;
}

inline void expect_same(const Outcome& want, const Outcome& got, const Named& tensors,
                        const std::string& what) {
  ASSERT_EQ(want.outputs.size(), got.outputs.size()) << what;
  for (size_t i = 0; i < want.outputs.size(); ++i)
    EXPECT_TRUE(same_bits(want.outputs[i], got.outputs[i])) << what << ": output " << i;
  ASSERT_EQ(want.gradients.size(), got.gradients.size()) << what;
  for (size_t i = 0; i < want.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(want.gradients[i], got.gradients[i]))
        << what << ": gradient of "
        << (i < tensors.parameters.size() ? tensors.parameters[i].first : "an input");
  }
  for (size_t i = 0; i < want.buffers.size(); ++i)
    EXPECT_TRUE(same_bits(want.buffers[i], got.buffers[i]))
        << what << ": buffer " << tensors.buffers[i].first;
}

inline void expect_same_names(const Named& want, const Named& got) {
  ASSERT_EQ(want.parameters.size(), got.parameters.size());
  for (size_t i = 0; i < want.parameters.size(); ++i) {
    EXPECT_EQ(want.parameters[i].first, got.parameters[i].first);
    EXPECT_TRUE(want.parameters[i].second.is_same(got.parameters[i].second)) << want.parameters[i].first;
  }
  ASSERT_EQ(want.buffers.size(), got.buffers.size());
  for (size_t i = 0; i < want.buffers.size(); ++i) {
    EXPECT_EQ(want.buffers[i].first, got.buffers[i].first);
    EXPECT_TRUE(want.buffers[i].second.is_same(got.buffers[i].second)) << want.buffers[i].first;
  }
}

/// Inputs of another batch size, with fresh random contents of the same kind.
inline Tensors other_batch(const Tensors& examples, const std::vector<int64_t>& dims, int64_t batch) {
  torch::manual_seed(5);
  Tensors result;
  for (size_t i = 0; i < examples.size(); ++i) {
    auto sizes = examples[i].sizes().vec();
    int64_t dim = dims.empty() ? 0 : dims[i];
    if (dim >= 0) sizes[dim] = batch;
    if (examples[i].is_floating_point()) {
      result.push_back(
          torch::randn(sizes, examples[i].options()).contiguous(examples[i].suggest_memory_format()));
    } else {
      result.push_back(dim < 0 ? examples[i].clone()
                               : examples[i].narrow(dim, 0, 1).expand(sizes).contiguous());
    }
  }
  return result;
}

/// How many nodes call `op`.
inline int64_t count(const graph::Graph& graph, std::string_view op) {
  return std::ranges::count_if(graph.nodes(), [&](const auto& node) { return node->is(op); });
}

/// Whether LibTorch itself computes an LSTM in bf16: oneDNN has none for processors with AVX2 alone.
inline bool libtorch_has_bf16_lstm() {
  static const bool has = [] {
    const AutocastBf16 guard(true);
    try {
      torch::nn::LSTM(2, 2)->forward(torch::zeros({1, 1, 2}));
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }();
  return has;
}

/// Processors without products in bf16 take a minute for a large network's convolutions in it, so that its
/// sizes are compared in fp32, and in bf16 one of them.
inline bool is_large(const Named& tensors) {
  int64_t numbers = 0;
  for (const auto& [name, parameter] : tensors.parameters) numbers += parameter.numel();
  return numbers > 1'000'000;
}

/// Eval and train, plain and under bf16 autocast, at the captured batch size and two others. `set_mode`
/// switches the original. Without `under_autocast` no bf16: for those that capture changes there on purpose.
inline void expect_equivalent(const Forward& forward, const std::function<void(bool)>& set_mode,
                              const Named& tensors, graph::GraphModule& captured, const Tensors& examples,
                              const std::vector<int64_t>& dims = {}, bool under_autocast = true) {
  expect_same_names(tensors, named(captured));
  Forward replay = [&](const Tensors& inputs) { return captured.run(inputs); };
  if (count(captured.graph(), "aten::lstm") > 0 && !libtorch_has_bf16_lstm()) under_autocast = false;
  std::vector<Tensors> batches{examples, other_batch(examples, dims, 5), other_batch(examples, dims, 2)};
  for (const Tensors& inputs : batches) {
    const bool in_bf16 = under_autocast && (&inputs == &batches.back() || !is_large(tensors));
    for (bool training : {false, true}) {
      for (bool autocast : {false, true}) {
        if (autocast && !in_bf16) continue;
        set_mode(training);
        captured.train(training);
        std::ostringstream what;
        what << (training ? "train" : "eval") << (autocast ? ", bf16 autocast" : "") << ", input "
             << inputs[0].sizes();
        Outcome want = outcome(forward, tensors, inputs, training, autocast);
        Outcome got = outcome(replay, tensors, inputs, training, autocast);
        expect_same(want, got, tensors, what.str());
      }
    }
  }
}

/// Captures a module and proves it equal.
template <typename Model>
std::shared_ptr<graph::GraphModule> check(Model& model, const Tensors& examples,
                                          const graph::CaptureOptions& options = {}) {
  auto captured = ulp::capture(model, examples, options);
  auto& module = [&]() -> auto& {
    if constexpr (requires { *model; }) {
      return *model;
    } else {
      return model;
    }
  }
  ();
  expect_equivalent([&](const Tensors& inputs) { return graph::detail::call(module, inputs); },
                    [&](bool on) { module.train(on); }, named(module), *captured, examples,
                    options.batch_dims);
  return captured;
}

}  // namespace ulp::test
