// A Siamese network: two images through one encoder, compared as points on a sphere.
#include "networks.h"

namespace ulp::test::siamese_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct SiameseImpl : nn::Module {
  nn::Sequential encoder;
  nn::Linear embed{nullptr};

  SiameseImpl() {
    encoder = register_module(
        "encoder", nn::Sequential(nn::Conv2d(1, 8, 5), nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(8, 16, 3),
                                  nn::ReLU(), nn::MaxPool2d(2), nn::Flatten()));
    embed = register_module("embed", nn::Linear(16 * 5 * 5, 32));
  }
  Tensor forward_once(Tensor x) {
    x = embed(encoder->forward(x));
    return F::normalize(x, F::NormalizeFuncOptions().p(2).dim(1));
  }
  std::tuple<Tensor, Tensor> forward(Tensor a, Tensor b) {
    auto first = forward_once(a), second = forward_once(b);
    auto similarity = F::cosine_similarity(first, second, F::CosineSimilarityFuncOptions().dim(1));
    auto distance = (first - second).pow(2).sum(1).add(1e-6).sqrt();
    return {similarity, distance};
  }
};
TORCH_MODULE(Siamese);

}  // namespace
}  // namespace ulp::test::siamese_net

ulp::test::Network ulp::test::siamese() {
  return {"siamese", [] { return instance(siamese_net::Siamese().ptr()); },
          normal({{1, 28, 28}, {1, 28, 28}})};
}
