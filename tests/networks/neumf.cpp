// NeuMF: factors of users and items multiplied, a perceptron over others of them, and one score of both.
// Pairs come as rows of two ids.
#include "networks.h"

namespace ulp::test::neumf_net {
namespace {

using torch::Tensor;
using torch::indexing::Slice;
namespace nn = torch::nn;

class NeuMF : public nn::Module {
 public:
  NeuMF(int64_t num_users, int64_t num_items, int64_t factors, std::vector<int64_t> layers, double dropout)
      : dropout_(dropout) {
    user_gmf_ = register_module("user_gmf", nn::Embedding(num_users, factors));
    item_gmf_ = register_module("item_gmf", nn::Embedding(num_items, factors));
    user_mlp_ = register_module("user_mlp", nn::Embedding(num_users, layers[0] / 2));
    item_mlp_ = register_module("item_mlp", nn::Embedding(num_items, layers[0] / 2));
    for (size_t i = 0; i + 1 < layers.size(); i++) {
      fc_.push_back(nn::Linear(layers[i], layers[i + 1]));
      register_module("fc" + std::to_string(i), fc_[i]);
    }
    affine_ = register_module("affine", nn::Linear(layers.back() + factors, 1));
    apply([](nn::Module& module) {
      if (auto* table = module.as<nn::Embedding>()) nn::init::normal_(table->weight, 0, 0.5);
      if (auto* linear = module.as<nn::Linear>()) nn::init::xavier_uniform_(linear->weight);
    });
  }
  Tensor forward(Tensor pairs) {
    auto users = pairs.index({Slice(), 0}), items = pairs.index({Slice(), 1});
    auto product = torch::mul(user_gmf_(users), item_gmf_(items));
    auto x = torch::cat({user_mlp_->forward(users), item_mlp_->forward(items)}, -1);
    for (auto& layer : fc_) {
      x = layer->forward(x).relu();
      x = torch::dropout(x, dropout_, is_training());
    }
    return torch::sigmoid(affine_(torch::cat({product, x}, -1))).squeeze();
  }

 private:
  double dropout_;
  nn::Embedding user_gmf_{nullptr}, item_gmf_{nullptr}, user_mlp_{nullptr}, item_mlp_{nullptr};
  std::vector<nn::Linear> fc_;
  nn::Linear affine_{nullptr};
};

}  // namespace
}  // namespace ulp::test::neumf_net

ulp::test::Network ulp::test::neumf() {
  const auto make = [] {
    return instance(std::make_shared<neumf_net::NeuMF>(30, 50, 8, std::vector<int64_t>{32, 16, 8}, 0.2));
  };
  const auto inputs = [](int64_t batch) {
    return std::vector<torch::Tensor>{
        torch::stack({torch::randint(0, 30, {batch}), torch::randint(0, 50, {batch})}, 1)};
  };
  return {"neumf", make, inputs};
}
