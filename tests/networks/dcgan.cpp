// DCGAN: a generator of images out of noise, and the discriminator that it plays against.
#include "networks.h"

namespace ulp::test::dcgan_net {
namespace {

namespace nn = torch::nn;

struct DCGANGeneratorImpl : nn::Module {
  nn::ConvTranspose2d conv1, conv2, conv3;
  nn::BatchNorm2d batch_norm1, batch_norm2;

  explicit DCGANGeneratorImpl(int kNoiseSize)
      : conv1(nn::ConvTranspose2dOptions(kNoiseSize, 32, 4).bias(false)),
        conv2(nn::ConvTranspose2dOptions(32, 16, 3).stride(2).padding(1).bias(false)),
        conv3(nn::ConvTranspose2dOptions(16, 1, 4).stride(2).padding(1).bias(false)),
        batch_norm1(32),
        batch_norm2(16) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv3", conv3);
    register_module("batch_norm1", batch_norm1);
    register_module("batch_norm2", batch_norm2);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = x.view({x.size(0), x.size(1), 1, 1});
    x = torch::relu(batch_norm1(conv1(x)));
    x = torch::relu(batch_norm2(conv2(x)));
    return torch::tanh(conv3(x));
  }
};
TORCH_MODULE(DCGANGenerator);

nn::Sequential make_discriminator() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 8, 4).stride(2).padding(1).bias(false)),
                        nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Conv2d(nn::Conv2dOptions(8, 16, 4).stride(2).padding(1).bias(false)),
                        nn::BatchNorm2d(16), nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Conv2d(nn::Conv2dOptions(16, 32, 4).stride(2).padding(1).bias(false)),
                        nn::BatchNorm2d(32), nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Conv2d(nn::Conv2dOptions(32, 1, 3).stride(1).padding(0).bias(false)),
                        nn::Sigmoid());
}

}  // namespace
}  // namespace ulp::test::dcgan_net

ulp::test::Network ulp::test::dcgan_generator() {
  return {"dcgan_generator", [] { return instance(dcgan_net::DCGANGenerator(16).ptr()); }, normal({{16}})};
}

ulp::test::Network ulp::test::dcgan_discriminator() {
  const auto make = [] {
    torch::nn::Sequential model = dcgan_net::make_discriminator();
    return Instance{model.ptr(), [model](const std::vector<torch::Tensor>& inputs) mutable {
                      return c10::IValue(model->forward(inputs[0]).view(-1));
                    }};
  };
  return {"dcgan_discriminator", make, normal({{1, 28, 28}})};
}
