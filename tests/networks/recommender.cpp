// A recommender: a product of factors with biases, and a network over them and a bag of what was seen before.
#include "networks.h"

namespace ulp::test::recommender_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct RecommenderImpl : nn::Module {
  nn::Embedding users, items, user_bias, item_bias;
  nn::EmbeddingBag history;
  nn::Sequential deep;
  Tensor mean;

  RecommenderImpl(int64_t num_users, int64_t num_items, int64_t factors)
      : users(num_users, factors),
        items(num_items, factors),
        user_bias(num_users, 1),
        item_bias(num_items, 1),
        history(nn::EmbeddingBagOptions(num_items, factors).mode(torch::kMean)),
        deep(nn::Linear(3 * factors, 32), nn::ReLU(), nn::Dropout(0.1), nn::Linear(32, 1)) {
    register_module("users", users);
    register_module("items", items);
    register_module("user_bias", user_bias);
    register_module("item_bias", item_bias);
    register_module("history", history);
    register_module("deep", deep);
    mean = register_buffer("mean", torch::tensor(0.3f));
  }
  Tensor forward(Tensor user, Tensor item, Tensor seen) {
    auto p = users(user), q = items(item);
    auto wide = (p * q).sum(1) + user_bias(user).squeeze(1) + item_bias(item).squeeze() + mean;
    auto x = torch::cat({p, q, history(seen)}, /*dim=*/1);
    return torch::sigmoid(wide + deep->forward(x).squeeze(-1));
  }
};
TORCH_MODULE(Recommender);

}  // namespace
}  // namespace ulp::test::recommender_net

ulp::test::Network ulp::test::recommender() {
  const auto make = [] { return instance(recommender_net::Recommender(40, 60, 12).ptr()); };
  const auto inputs = [](int64_t batch) {
    return std::vector<torch::Tensor>{torch::randint(0, 40, {batch}), torch::randint(0, 60, {batch}),
                                      torch::randint(0, 60, {batch, 5})};
  };
  return {"recommender", make, inputs};
}
