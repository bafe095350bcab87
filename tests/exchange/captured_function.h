// A function of one tensor as a captured graph in eval mode, for tests of writers.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <random>
#include <utility>

#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace ulp::test {

/// Layers that are registered keep their names.
struct FunctionNet : torch::nn::Module {
  std::function<at::Tensor(const at::Tensor&)> body;
  at::Tensor forward(at::Tensor x) { return body(x); }
};

inline std::shared_ptr<graph::GraphModule> captured_net(const std::shared_ptr<FunctionNet>& net,
                                                        const at::Tensor& x) {
  net->eval();
  auto module = capture(net, {x});
  module->eval();
  return module;
}

inline std::shared_ptr<graph::GraphModule> captured_function(
    std::function<at::Tensor(const at::Tensor&)> body, const at::Tensor& x) {
  auto net = std::make_shared<FunctionNet>();
  net->body = std::move(body);
  return captured_net(net, x);
}

/// The largest difference as a share of the largest number.
inline double relative_difference(const at::Tensor& ours, const at::Tensor& theirs) {
  if (ours.sizes() != theirs.sizes()) return INFINITY;
  const double largest = std::max(ours.abs().max().item<double>(), 1e-30);
  return (ours.to(at::kDouble) - theirs.to(at::kDouble)).abs().max().item<double>() / largest;
}

/// Numbers that are the same with every standard library.
class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  /// In [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool coin() { return between(0, 1) == 0; }
  template <typename T>
  T one_of(std::initializer_list<T> items) {
    return items.begin()[between(0, static_cast<int64_t>(items.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace ulp::test
