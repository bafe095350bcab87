// Autoencoders of flat images: a plain one, and a variational one that draws noise while it trains.
#include "networks.h"

namespace ulp::test::autoencoder_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct AutoencoderImpl : nn::Module {
  nn::Sequential encoder{nn::Linear(144, 64), nn::ReLU(), nn::Linear(64, 24), nn::ELU(), nn::Linear(24, 6)};
  nn::Sequential decoder{nn::Linear(6, 24), nn::ELU(),           nn::Linear(24, 64),
                         nn::ReLU(),        nn::Linear(64, 144), nn::Sigmoid()};

  AutoencoderImpl() {
    register_module("encoder", encoder);
    register_module("decoder", decoder);
  }
  Tensor forward(const Tensor& images) {
    auto x = images.view({images.size(0), -1});
    return decoder->forward(encoder->forward(x)).view_as(images);
  }
};
TORCH_MODULE(Autoencoder);

struct VaeOutput {
  Tensor reconstruction, mu, log_var;
};

struct VaeImpl : nn::Module {
  nn::Linear fc1, fc2, fc3, fc4, fc5;

  VaeImpl(int64_t image, int64_t hidden, int64_t latent)
      : fc1(image, hidden),
        fc2(hidden, latent),
        fc3(hidden, latent),
        fc4(latent, hidden),
        fc5(hidden, image) {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("fc3", fc3);
    register_module("fc4", fc4);
    register_module("fc5", fc5);
  }
  std::pair<Tensor, Tensor> encode(Tensor x) {
    auto h = torch::relu(fc1->forward(x));
    return {fc2->forward(h), fc3->forward(h)};
  }
  Tensor reparameterize(Tensor mu, Tensor log_var) {
    if (!is_training()) return mu;
    auto std = log_var.div(2).exp();
    auto eps = torch::randn_like(std);
    return eps.mul(std).add_(mu);
  }
  VaeOutput forward(Tensor x) {
    auto [mu, log_var] = encode(x.view({-1, 144}));
    auto z = reparameterize(mu, log_var);
    auto h = torch::relu(fc4->forward(z));
    return {torch::sigmoid(fc5->forward(h)), mu, log_var};
  }
};
TORCH_MODULE(Vae);

}  // namespace
}  // namespace ulp::test::autoencoder_net

ulp::test::Network ulp::test::autoencoder() {
  return {"autoencoder", [] { return instance(autoencoder_net::Autoencoder().ptr()); },
          normal({{1, 12, 12}})};
}

ulp::test::Network ulp::test::vae() {
  const auto make = [] {
    autoencoder_net::Vae model(144, 48, 8);
    return Instance{model.ptr(), [model](const std::vector<torch::Tensor>& inputs) mutable {
                      const autoencoder_net::VaeOutput out = model->forward(inputs[0]);
                      return c10::IValue(std::make_tuple(out.reconstruction, out.mu, out.log_var));
                    }};
  };
  return {"vae", make, normal({{1, 12, 12}})};
}
