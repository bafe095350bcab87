// Shared by the tests of pruning: networks of every kind of weight, masks, bits.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace ulp::prune::tests {

using ulp::test::error_of;

/// Equal element by element as bits: NaN equals itself, +0 is not -0.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const auto bits = [](const at::Tensor& t) {
    const at::ScalarType type = t.element_size() == 8   ? at::kLong
                                : t.element_size() == 4 ? at::kInt
                                : t.element_size() == 2 ? at::kShort
                                                        : at::kByte;
    return t.detach().contiguous().view(type);
  };
  return torch::equal(bits(a), bits(b));
}

/// Bools of which about `share` are true.
inline at::Tensor random_mask(at::IntArrayRef sizes, uint64_t seed, double share = 0.5) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::rand(sizes, generator, at::kFloat) < share;
}

/// Two linear layers, 12-20-5.
struct TwoLayersImpl : torch::nn::Module {
  TwoLayersImpl() {
    fc1 = register_module("fc1", torch::nn::Linear(12, 20));
    fc2 = register_module("fc2", torch::nn::Linear(20, 5));
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(torch::relu(fc1(x))); }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(TwoLayers);

inline std::shared_ptr<graph::GraphModule> two_layers(uint64_t seed = 1) {
  torch::manual_seed(seed);
  TwoLayers model;
  return capture(model, {torch::randn({3, 12})});
}

}  // namespace ulp::prune::tests
