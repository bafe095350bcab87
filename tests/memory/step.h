// One training step of a module without its optimizer, to be compared bit for bit with another one.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/graph/graph_module.h"

namespace ulp::test {

/// What a step leaves behind, by name.
using Traces = std::vector<std::pair<std::string, torch::Tensor>>;

/// A number that depends on each result.
inline torch::Tensor loss_of(const std::vector<torch::Tensor>& results) {
  torch::Tensor loss = torch::zeros({});
  for (const torch::Tensor& result : results) {
    if (result.is_floating_point()) loss = loss + (result.to(torch::kFloat) * 0.7 + 0.1).square().mean();
  }
  return loss;
}

inline Traces traces_of(torch::nn::Module& module) {
  Traces traces;
  for (const auto& parameter : module.named_parameters())
    traces.emplace_back("gradient of " + parameter.key(), parameter.value().grad());
  for (const auto& buffer : module.named_buffers()) traces.emplace_back(buffer.key(), buffer.value().clone());
  return traces;
}

/// Forward and backward from random state 5, with the buffers as they were before, after which those are
/// back.
inline Traces step(graph::GraphModule& module, const std::vector<torch::Tensor>& inputs, bool bf16 = false) {
  Traces before;
  for (const auto& buffer : module.named_buffers()) before.emplace_back(buffer.key(), buffer.value().clone());
  module.zero_grad();
  torch::manual_seed(5);
  std::vector<torch::Tensor> results;
  {
    const amp::Autocast autocast(inputs[0].device().type(), torch::kBFloat16, bf16);
    results = module.forward_all(inputs);
  }
  const torch::Tensor random = torch::rand({4});
  loss_of(results).backward();
  Traces traces = traces_of(module);
  for (size_t i = 0; i < results.size(); ++i)
    traces.emplace_back("result " + std::to_string(i), results[i].detach());
  traces.emplace_back("random numbers behind the forward", random);
  traces.emplace_back("random numbers behind the backward", torch::rand({4}));
  const torch::NoGradGuard no_grad;
  for (const auto& [name, value] : before) module.named_buffers()[name].copy_(value);
  return traces;
}

inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  return a.equal(b) ||
         (a.is_floating_point() && a.isnan().equal(b.isnan()) && a.nan_to_num().equal(b.nan_to_num()));
}

inline void expect_same(const Traces& expected, const Traces& found, const std::string& where) {
  ASSERT_EQ(expected.size(), found.size()) << where;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].first, found[i].first) << where;
    EXPECT_TRUE(same_bits(expected[i].second, found[i].second)) << where << ": " << expected[i].first;
  }
}

}  // namespace ulp::test
