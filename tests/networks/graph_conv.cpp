// Graph convolutions on a dense adjacency, which is an input beside the features of the nodes.
#include "networks.h"

namespace ulp::test::graph_conv_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct GraphConvImpl : nn::Module {
  Tensor weight, bias;

  GraphConvImpl(int64_t in, int64_t out) {
    weight = register_parameter("weight", torch::empty({in, out}));
    bias = register_parameter("bias", torch::zeros(out));
    nn::init::xavier_uniform_(weight);
  }
  Tensor forward(const Tensor& x, const Tensor& adjacency) {
    const auto support = torch::matmul(x, weight);
    return torch::matmul(adjacency, support) + bias;
  }
};
TORCH_MODULE(GraphConv);

struct GraphNetImpl : nn::Module {
  GraphConv conv1{nullptr}, conv2{nullptr};
  nn::Linear out{nullptr};

  GraphNetImpl(int64_t features, int64_t hidden, int64_t classes) {
    conv1 = register_module("conv1", GraphConv(features, hidden));
    conv2 = register_module("conv2", GraphConv(hidden, hidden));
    out = register_module("out", nn::Linear(2 * hidden, classes));
  }
  static Tensor normalised(const Tensor& edges) {
    const auto a = edges + torch::eye(edges.size(-1), edges.options());
    const auto d = a.sum(-1).pow(-0.5);
    return d.unsqueeze(-1) * a * d.unsqueeze(-2);
  }
  Tensor forward(const Tensor& nodes, const Tensor& edges) {
    const auto a = normalised(edges);
    auto x = F::elu(conv1(nodes, a));
    x = F::dropout(x, F::DropoutFuncOptions().p(0.2).training(is_training()));
    x = F::elu(conv2(x, a));
    const auto pooled = torch::cat({x.mean(1), x.amax(1)}, -1);
    return F::log_softmax(out(pooled), F::LogSoftmaxFuncOptions(-1));
  }
};
TORCH_MODULE(GraphNet);

}  // namespace
}  // namespace ulp::test::graph_conv_net

ulp::test::Network ulp::test::graph_conv() {
  const auto make = [] { return instance(graph_conv_net::GraphNet(6, 16, 3).ptr()); };
  const auto inputs = [](int64_t batch) {
    const torch::Tensor half = torch::rand({batch, 9, 9}).triu(1).gt(0.6).to(torch::kFloat);
    return std::vector<torch::Tensor>{torch::randn({batch, 9, 6}), half + half.transpose(1, 2)};
  };
  return {"graph_conv", make, inputs};
}
