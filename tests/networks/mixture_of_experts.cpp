// A mixture of experts: every expert computes, a gate weighs them.
#include "networks.h"

namespace ulp::test::mixture_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct ExpertImpl : nn::Module {
  nn::Linear up{nullptr}, down{nullptr};

  ExpertImpl(int64_t width, int64_t hidden) {
    up = register_module("up", nn::Linear(width, hidden));
    down = register_module("down", nn::Linear(hidden, width));
  }
  Tensor forward(Tensor x) { return down(torch::nn::functional::mish(up(x))); }
};
TORCH_MODULE(Expert);

struct MixtureImpl : nn::Module {
  nn::Linear embed{nullptr}, gate{nullptr}, head{nullptr};
  nn::ModuleList experts;
  nn::LayerNorm norm{nullptr};

  MixtureImpl(int64_t features, int64_t width, int64_t count, int64_t classes) {
    embed = register_module("embed", nn::Linear(features, width));
    gate = register_module("gate", nn::Linear(nn::LinearOptions(width, count).bias(false)));
    for (int64_t i = 0; i < count; ++i) experts->push_back(Expert(width, 2 * width));
    register_module("experts", experts);
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    head = register_module("head", nn::Linear(width, classes));
  }
  Tensor forward(Tensor x) {
    x = torch::softplus(embed(x));
    auto logits = gate(x);
    if (is_training()) logits = logits + torch::randn_like(logits) * 0.1;
    auto weights = torch::softmax(logits, -1);
    std::vector<Tensor> results;
    for (size_t i = 0; i < experts->size(); ++i) results.push_back(experts->at<ExpertImpl>(i).forward(x));
    auto mixed = torch::einsum("be,bed->bd", {weights, torch::stack(results, 1)});
    return head(norm(x + mixed));
  }
};
TORCH_MODULE(Mixture);

}  // namespace
}  // namespace ulp::test::mixture_net

ulp::test::Network ulp::test::mixture_of_experts() {
  return {"mixture_of_experts", [] { return instance(mixture_net::Mixture(10, 16, 4, 3).ptr()); },
          normal({{10}})};
}
