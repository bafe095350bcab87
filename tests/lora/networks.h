// Small networks for the tests of adapters.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace ulp::lora {

/// Two blocks of three linear layers with ReLU between, and a last layer.
struct SmallNetImpl : torch::nn::Module {
  struct BlockImpl : torch::nn::Module {
    explicit BlockImpl(int64_t width) : up(width, 2 * width), down(2 * width, width), side(width, width) {
      register_module("up_proj", up);
      register_module("down_proj", down);
      register_module("side_proj", side);
    }
    at::Tensor forward(const at::Tensor& x) { return side(x) + down(torch::relu(up(x))); }
    torch::nn::Linear up, down, side;
  };
  TORCH_MODULE(Block);

  explicit SmallNetImpl(int64_t width = 32, int64_t classes = 4)
      : first(width), second(width), head(width, classes) {
    register_module("first", first);
    register_module("second", second);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) { return head(second(first(x))); }
  Block first, second;
  torch::nn::Linear head;
};
TORCH_MODULE(SmallNet);

inline std::shared_ptr<graph::GraphModule> captured_net(SmallNet& net, int64_t width = 32) {
  return ulp::capture(*net, {torch::randn({3, width})});
}

/// Adapters as after training: B is drawn, too.
template <typename Model>
void draw_adapters(Model& model) {
  const at::NoGradGuard no_grad;
  for (const auto& layer : model.layers()) model.b(layer).normal_(0, 0.1);
}

}  // namespace ulp::lora
