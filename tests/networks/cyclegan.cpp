// CycleGAN: two generators with mirrored borders that undo each other, and discriminators of patches.
#include "networks.h"

namespace ulp::test::cyclegan_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// What a step of training needs of both directions.
struct Cycle {
  Tensor fake_b, recovered_a, fake_a, recovered_b, judged_b, judged_a;
};

struct ResidualBlockImpl : nn::Module {
  nn::Sequential block;
  explicit ResidualBlockImpl(int64_t features)
      : block(nn::ReflectionPad2d(1), nn::Conv2d(features, features, 3), nn::InstanceNorm2d(features),
              nn::ReLU(nn::ReLUOptions().inplace(true)), nn::ReflectionPad2d(1),
              nn::Conv2d(features, features, 3), nn::InstanceNorm2d(features)) {
    register_module("block", block);
  }
  Tensor forward(const Tensor& x) { return x + block->forward(x); }
};
TORCH_MODULE(ResidualBlock);

struct GeneratorImpl : nn::Module {
  nn::Sequential model;
  GeneratorImpl(int64_t channels, int64_t width, int blocks) {
    model->push_back(nn::ReflectionPad2d(2));
    model->push_back(nn::Conv2d(nn::Conv2dOptions(channels, width, 5)));
    model->push_back(nn::InstanceNorm2d(width));
    model->push_back(nn::ReLU(true));
    model->push_back(nn::Conv2d(nn::Conv2dOptions(width, 2 * width, 3).stride(2).padding(1)));
    model->push_back(nn::InstanceNorm2d(nn::InstanceNorm2dOptions(2 * width).affine(true)));
    model->push_back(nn::ReLU(true));
    for (int i = 0; i < blocks; ++i) model->push_back(ResidualBlock(2 * width));
    model->push_back(nn::ConvTranspose2d(
        nn::ConvTranspose2dOptions(2 * width, width, 3).stride(2).padding(1).output_padding(1)));
    model->push_back(nn::InstanceNorm2d(width));
    model->push_back(nn::ReLU(true));
    model->push_back(nn::ReflectionPad2d(2));
    model->push_back(nn::Conv2d(nn::Conv2dOptions(width, channels, 5)));
    model->push_back(nn::Tanh());
    register_module("model", model);
  }
  Tensor forward(Tensor x) { return model->forward(x); }
};
TORCH_MODULE(Generator);

struct DiscriminatorImpl : nn::Module {
  nn::Conv2d conv1, conv2, conv3;
  nn::ZeroPad2d pad{nn::ZeroPad2dOptions({1, 0, 1, 0})};
  DiscriminatorImpl(int64_t channels, int64_t width)
      : conv1(nn::Conv2dOptions(channels, width, 4).stride(2).padding(1)),
        conv2(nn::Conv2dOptions(width, 2 * width, 4).stride(2).padding(1)),
        conv3(nn::Conv2dOptions(2 * width, 1, 4).padding(1)) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv3", conv3);
    register_module("pad", pad);
  }
  Tensor forward(const Tensor& image) {
    auto x = F::leaky_relu(conv1(image), F::LeakyReLUFuncOptions().negative_slope(0.2).inplace(true));
    x = F::instance_norm(conv2(x), F::InstanceNormFuncOptions());
    x = torch::leaky_relu_(x, 0.2);
    return conv3(pad(x)).flatten(1).mean(1);
  }
};
TORCH_MODULE(Discriminator);

struct CycleGanImpl : nn::Module {
  Generator g_ab{3, 6, 1}, g_ba{3, 6, 1};
  Discriminator d_a{3, 6}, d_b{3, 6};
  CycleGanImpl() {
    register_module("g_ab", g_ab);
    register_module("g_ba", g_ba);
    register_module("d_a", d_a);
    register_module("d_b", d_b);
  }
  Cycle forward(const Tensor& a, const Tensor& b) {
    Cycle out;
    out.fake_b = g_ab(a);
    out.recovered_a = g_ba(out.fake_b);
    out.fake_a = g_ba(b);
    out.recovered_b = g_ab(out.fake_a);
    out.judged_b = d_b(out.fake_b);
    out.judged_a = d_a(out.fake_a);
    return out;
  }
};
TORCH_MODULE(CycleGan);

}  // namespace
}  // namespace ulp::test::cyclegan_net

ulp::test::Network ulp::test::cyclegan() {
  const auto make = [] {
    cyclegan_net::CycleGan model;
    return Instance{
        model.ptr(), [model](const std::vector<torch::Tensor>& inputs) mutable {
          const auto out = model->forward(inputs[0], inputs[1]);
          return c10::IValue(std::vector<torch::Tensor>{out.fake_b, out.recovered_a, out.fake_a,
                                                        out.recovered_b, out.judged_b, out.judged_a});
        }};
  };
  return {"cyclegan", make, normal({{3, 12, 12}, {3, 12, 12}})};
}
