#include "ulp/models/shufflenet_v2.h"

#include "ulp/models/layers.h"

namespace ulp::models {

namespace {

using torch::nn::BatchNorm2d;
using torch::nn::ReLU;
using torch::nn::Sequential;

ReLU relu() {
  return ReLU(torch::nn::ReLUOptions().inplace(true));
}

/// Channel g * c + i of two groups becomes channel i * 2 + g.
at::Tensor shuffle(const at::Tensor& x) {
  const int64_t n = x.size(0), channels = x.size(1), h = x.size(2), w = x.size(3);
  return x.view({n, 2, channels / 2, h, w}).transpose(1, 2).contiguous().view({n, channels, h, w});
}

/// Half of the channels pass by, or both halves are made from the whole input where the image is halved.
class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(int64_t in, int64_t out, int64_t stride) : halves_(stride > 1) {
    const int64_t width = out / 2, inner = halves_ ? in : width;
    branch1 = register_module("branch1", halves_ ? Sequential(conv(in, in, 3, stride, in), BatchNorm2d(in),
                                                              conv(in, width, 1), BatchNorm2d(width), relu())
                                                 : Sequential());
    branch2 = register_module("branch2", Sequential(conv(inner, width, 1), BatchNorm2d(width), relu(),
                                                    conv(width, width, 3, stride, width), BatchNorm2d(width),
                                                    conv(width, width, 1), BatchNorm2d(width), relu()));
  }

  at::Tensor forward(const at::Tensor& x) {
    if (halves_) return shuffle(torch::cat({branch1->forward(x), branch2->forward(x)}, 1));
    const std::vector<at::Tensor> parts = x.chunk(2, 1);
    return shuffle(torch::cat({parts[0], branch2->forward(parts[1])}, 1));
  }

 private:
  bool halves_;
  Sequential branch1{nullptr}, branch2{nullptr};
};

class ShuffleNetV2 final : public ImageModel {
 public:
  explicit ShuffleNetV2(const ShuffleNetV2Options& options)
      : in_channels_(options.in_channels), pool_(!options.small_input) {
    const int64_t widths[] = {116, 232, 464}, blocks[] = {4, 8, 4};
    int64_t channels = 24;
    conv1 = register_module("conv1", Sequential(conv(in_channels_, channels, 3, options.small_input ? 1 : 2),
                                                BatchNorm2d(channels), relu()));
    for (int stage = 0; stage < 3; ++stage) {
      Sequential layer;
      for (int64_t block = 0; block < blocks[stage]; ++block) {
        layer->push_back(std::make_shared<BlockImpl>(channels, widths[stage], block == 0 ? 2 : 1));
        channels = widths[stage];
      }
      stages_.push_back(register_module("stage" + std::to_string(stage + 2), layer));
    }
    conv5 = register_module("conv5", Sequential(conv(channels, 1024, 1), BatchNorm2d(1024), relu()));
    fc = register_module("fc", torch::nn::Linear(1024, options.num_classes));
  }

  at::Tensor forward(at::Tensor x) override {
    check_images("shufflenet_v2_x1_0", x, in_channels_);
    x = conv1->forward(x);
    if (pool_) x = torch::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    for (Sequential& stage : stages_) x = stage->forward(x);
    return fc(conv5->forward(x).mean({2, 3}));
  }

 private:
  int64_t in_channels_;
  bool pool_;
  Sequential conv1{nullptr}, conv5{nullptr};
  std::vector<Sequential> stages_;
  torch::nn::Linear fc{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_shufflenet_v2_x1_0(const ShuffleNetV2Options& options) {
  check_option("shufflenet_v2_x1_0", "in_channels", options.in_channels);
  check_option("shufflenet_v2_x1_0", "num_classes", options.num_classes);
  return std::make_shared<ShuffleNetV2>(options);
}

}  // namespace ulp::models
