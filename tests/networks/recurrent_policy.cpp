// A policy with memory: episodes that end within a batch of steps reset its state, actions are the likeliest
// ones in eval mode and drawn ones in train mode.
#include "networks.h"

namespace ulp::test::recurrent_policy_net {
namespace {

using torch::Tensor;
using torch::indexing::Slice;
namespace nn = torch::nn;

/// A distribution over actions from logits.
class Categorical {
 public:
  explicit Categorical(const Tensor& logits) {
    logits_ = logits - logits.logsumexp(-1, /*keepdim=*/true);
    probs_ = torch::softmax(logits_, -1);
  }
  Tensor mode() const { return probs_.argmax(-1, true); }
  Tensor log_prob(const Tensor& action) const { return logits_.gather(-1, action); }
  Tensor entropy() const { return -(logits_.clamp_min(-1e30) * probs_).sum(-1); }

 private:
  Tensor logits_, probs_;
};

struct Decision {
  Tensor value, action, log_prob, entropy, states;
};

struct RecurrentPolicyImpl : nn::Module {
  nn::Sequential features;
  nn::GRUCell gru{nullptr};
  nn::Linear critic{nullptr}, actor{nullptr};

  RecurrentPolicyImpl(int64_t observations, int64_t hidden, int64_t actions) {
    features = register_module("features", nn::Sequential(nn::Linear(observations, 2 * hidden), nn::Tanh(),
                                                          nn::Linear(2 * hidden, hidden), nn::Tanh()));
    gru = register_module("gru", nn::GRUCell(hidden, hidden));
    critic = register_module("critic", nn::Linear(hidden, 1));
    actor = register_module("actor", nn::Linear(hidden, actions));
    torch::NoGradGuard no_grad;
    const double gain = nn::init::calculate_gain(torch::kTanh);
    for (auto& item : named_parameters()) {
      if (item.key().find("bias") != std::string::npos)
        nn::init::constant_(item.value(), 0);
      else
        nn::init::orthogonal_(item.value(), gain);
    }
  }
  /// Observations [batch, steps, n], states [batch, hidden], masks [batch, steps]: 0 where an episode began
  /// anew.
  Decision forward(const Tensor& observations, Tensor states, const Tensor& masks) {
    auto x = features->forward(observations);
    auto outputs = torch::empty_like(x);
    for (int64_t t = 0; t < x.size(1); ++t) {
      states = gru(x.select(1, t), states * masks.select(1, t).view({-1, 1}));
      outputs.select(1, t).copy_(states);
    }
    const Categorical dist(actor(outputs));
    const auto action = dist.mode();
    return {critic(outputs).squeeze(-1), action, dist.log_prob(action), dist.entropy(), states};
  }
};
TORCH_MODULE(RecurrentPolicy);

}  // namespace
}  // namespace ulp::test::recurrent_policy_net

ulp::test::Network ulp::test::recurrent_policy() {
  const auto make = [] {
    recurrent_policy_net::RecurrentPolicy model(6, 16, 4);
    return Instance{model.ptr(), [model](const std::vector<torch::Tensor>& inputs) mutable {
                      const auto out = model->forward(inputs[0], inputs[1], inputs[2]);
                      return c10::IValue(std::vector<torch::Tensor>{out.value, out.action, out.log_prob,
                                                                    out.entropy, out.states});
                    }};
  };
  const auto inputs = [](int64_t batch) {
    return std::vector<torch::Tensor>{torch::randn({batch, 5, 6}), torch::randn({batch, 16}) * 0.3,
                                      torch::rand({batch, 5}).gt(0.3).to(torch::kFloat)};
  };
  return {"recurrent_policy", make, inputs};
}
