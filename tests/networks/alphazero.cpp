// AlphaZero's network: a residual tower over planes of the board, a policy over the moves that are legal on
// it (and to pass), and a value.
#include "networks.h"

namespace ulp::test::alphazero_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct ResBlockImpl : nn::Module {
  nn::Conv2d conv1, conv2;
  nn::BatchNorm2d bn1, bn2;
  explicit ResBlockImpl(int64_t channels)
      : conv1(nn::Conv2dOptions(channels, channels, 3).padding(1).bias(false)),
        conv2(nn::Conv2dOptions(channels, channels, 3).padding(1).bias(false)),
        bn1(channels),
        bn2(channels) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("bn1", bn1);
    register_module("bn2", bn2);
  }
  torch::Tensor forward(torch::Tensor x) {
    torch::Tensor residual = x.clone();
    x = torch::relu(bn1(conv1(x)));
    x = bn2(conv2(x));
    x.add_(residual);
    return x.relu_();
  }
};
TORCH_MODULE(ResBlock);

struct AlphaZeroImpl : nn::Module {
  int64_t board;
  nn::Conv2d conv{nullptr}, policy_conv{nullptr}, value_conv{nullptr};
  nn::BatchNorm2d bn{nullptr}, policy_bn{nullptr}, value_bn{nullptr};
  std::vector<ResBlock> tower;
  nn::Linear policy_fc{nullptr}, value_fc1{nullptr}, value_fc2{nullptr};

  AlphaZeroImpl(int64_t board_size, int64_t planes, int64_t channels, int blocks) : board(board_size) {
    const auto cells = board * board;
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(planes, channels, 3).padding(1)));
    bn = register_module("bn", nn::BatchNorm2d(channels));
    for (int i = 0; i < blocks; ++i) {
      tower.emplace_back(channels);
      register_module("res" + std::to_string(i), tower.back());
    }
    policy_conv = register_module("policy_conv", nn::Conv2d(nn::Conv2dOptions(channels, 2, 1)));
    policy_bn = register_module("policy_bn", nn::BatchNorm2d(2));
    policy_fc = register_module("policy_fc", nn::Linear(2 * cells, cells + 1));
    value_conv = register_module("value_conv", nn::Conv2d(nn::Conv2dOptions(channels, 1, 1)));
    value_bn = register_module("value_bn", nn::BatchNorm2d(1));
    value_fc1 = register_module("value_fc1", nn::Linear(cells, 16));
    value_fc2 = register_module("value_fc2", nn::Linear(16, 1));
  }
  /// Empty cells, and the pass.
  Tensor legal_moves(const Tensor& planes) const {
    const auto taken = planes.slice(1, 0, 2).sum(1).flatten(1);
    return torch::cat({taken.eq(0), torch::ones({planes.size(0), 1}, torch::kBool)}, 1);
  }
  std::pair<Tensor, Tensor> forward(Tensor planes) {
    auto x = torch::relu(bn(conv(planes)));
    for (auto& block : tower) x = block->forward(x);
    auto p = torch::relu(policy_bn(policy_conv(x))).view({-1, 2 * board * board});
    auto v = torch::relu(value_bn(value_conv(x))).view({-1, board * board});
    const auto legal = legal_moves(planes);
    auto logits = policy_fc(p);
    logits.masked_fill_(legal.logical_not(), -1e32);
    auto policy = torch::softmax(logits, 1) * legal.to(torch::kFloat);
    policy /= policy.sum(1, /*keepdim=*/true);
    return {policy, torch::tanh(value_fc2(torch::relu(value_fc1(v)))).view(-1)};
  }
};
TORCH_MODULE(AlphaZero);

}  // namespace
}  // namespace ulp::test::alphazero_net

ulp::test::Network ulp::test::alphazero() {
  // Stones of either side, never on one cell, and whose turn it is.
  const auto inputs = [](int64_t batch) {
    const auto stones = torch::randint(0, 3, {batch, 1, 5, 5});
    const auto turn = torch::randint(0, 2, {batch, 1, 1, 1}).expand({batch, 1, 5, 5});
    return std::vector<torch::Tensor>{
        torch::cat({stones.eq(1), stones.eq(2), turn.eq(1)}, 1).to(torch::kFloat)};
  };
  return {"alphazero", [] { return instance(alphazero_net::AlphaZero(5, 3, 16, 2).ptr()); }, inputs};
}
