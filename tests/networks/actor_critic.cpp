// An actor and a critic on one trunk: the mean and deviation of actions, and the value of a state.
#include "networks.h"

namespace ulp::test::actor_critic_net {
namespace {

using torch::Tensor;

struct ActorCritic : torch::nn::Module {
  torch::nn::Linear l1, l2, mu, log_std, value;

  ActorCritic(int64_t states, int64_t actions, int64_t hidden)
      : l1(states, hidden),
        l2(hidden, hidden),
        mu(hidden, actions),
        log_std(hidden, actions),
        value(hidden, 1) {
    register_module("l1", l1);
    register_module("l2", l2);
    register_module("mu", mu);
    register_module("log_std", log_std);
    register_module("value", value);
    for (auto& p : parameters())
      if (p.dim() == 2) torch::nn::init::orthogonal_(p);
  }
  std::tuple<Tensor, Tensor, Tensor> forward(Tensor state) {
    auto x = torch::tanh(l1->forward(state));
    x = torch::tanh(l2->forward(x));
    auto mean = torch::tanh(mu->forward(x)) * 2.0;
    auto deviation = log_std->forward(x).clamp(-5, 2).exp();
    return std::make_tuple(mean, deviation, value->forward(x).squeeze(-1));
  }
};

}  // namespace
}  // namespace ulp::test::actor_critic_net

ulp::test::Network ulp::test::actor_critic() {
  const auto make = [] { return instance(std::make_shared<actor_critic_net::ActorCritic>(8, 3, 32)); };
  return {"actor_critic", make, normal({{8}})};
}
