// PointNet: one network for every point, a maximum over points, and a learned transform of the input.
#include "networks.h"

namespace ulp::test::pointnet_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct TNetImpl : nn::Module {
  int64_t k;
  nn::Conv1d conv1, conv2;
  nn::Linear fc1, fc2;
  nn::BatchNorm1d bn1, bn2, bn3;

  explicit TNetImpl(int64_t size)
      : k(size),
        conv1(size, 16, 1),
        conv2(16, 64, 1),
        fc1(64, 32),
        fc2(32, size * size),
        bn1(16),
        bn2(64),
        bn3(32) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("bn1", bn1);
    register_module("bn2", bn2);
    register_module("bn3", bn3);
  }
  Tensor forward(Tensor x) {
    const auto batch = x.size(0);
    x = torch::relu(bn1(conv1(x)));
    x = torch::relu(bn2(conv2(x)));
    x = std::get<0>(torch::max(x, 2, true));
    x = x.view({-1, 64});
    x = fc2(torch::relu(bn3(fc1(x))));
    auto identity = torch::eye(k, x.options()).view({1, k * k}).repeat({batch, 1});
    x = x + identity;
    return x.view({-1, k, k});
  }
};
TORCH_MODULE(TNet);

struct PointNetImpl : nn::Module {
  TNet tnet;
  nn::Conv1d conv1, conv2, conv3;
  nn::BatchNorm1d bn1, bn2, bn3;
  nn::Linear fc1, fc2;
  nn::Dropout dropout;

  explicit PointNetImpl(int64_t classes)
      : tnet(3),
        conv1(3, 16, 1),
        conv2(16, 32, 1),
        conv3(32, 64, 1),
        bn1(16),
        bn2(32),
        bn3(64),
        fc1(64, 32),
        fc2(32, classes),
        dropout(0.3) {
    register_module("tnet", tnet);
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv3", conv3);
    register_module("bn1", bn1);
    register_module("bn2", bn2);
    register_module("bn3", bn3);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("dropout", dropout);
  }
  std::tuple<Tensor, Tensor> forward(Tensor x) {
    auto transform = tnet(x);
    x = torch::bmm(x.transpose(2, 1), transform).transpose(2, 1);
    x = torch::relu(bn1(conv1(x)));
    x = torch::relu(bn2(conv2(x)));
    x = bn3(conv3(x));
    x = std::get<0>(torch::max(x, 2));
    x = torch::relu(fc1(x));
    return {torch::log_softmax(fc2(dropout(x)), 1), transform};
  }
};
TORCH_MODULE(PointNet);

}  // namespace
}  // namespace ulp::test::pointnet_net

ulp::test::Network ulp::test::pointnet() {
  return {"pointnet", [] { return instance(pointnet_net::PointNet(8).ptr()); }, normal({{3, 48}})};
}
