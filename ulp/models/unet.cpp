#include "ulp/models/unet.h"

#include <torch/nn/modules/container/modulelist.h>

#include "ulp/base/error.h"
#include "ulp/models/layers.h"

namespace ulp::models {

namespace {

Conv2d conv3x3(int64_t in, int64_t out, bool bias) {
  return Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(bias));
}

torch::nn::Sequential double_conv(int64_t in, int64_t out, bool bias) {
  const auto relu = torch::nn::ReLUOptions().inplace(true);
  return torch::nn::Sequential(conv3x3(in, out, bias), torch::nn::BatchNorm2d(out), torch::nn::ReLU(relu),
                               conv3x3(out, out, bias), torch::nn::BatchNorm2d(out), torch::nn::ReLU(relu));
}

class UNet final : public ImageModel {
 public:
  explicit UNet(const UNetOptions& options) : options_(options) {
    encoder = register_module("encoder", torch::nn::ModuleList());
    int64_t channels = options.in_channels;
    for (int64_t level = 0; level < options.depth; ++level) {
      encoder->push_back(double_conv(channels, width(level), options.bias));
      channels = width(level);
    }
    bottleneck = register_module("bottleneck", double_conv(channels, width(options.depth), options.bias));
    up = register_module("up", torch::nn::ModuleList());
    decoder = register_module("decoder", torch::nn::ModuleList());
    for (int64_t level = options.depth - 1; level >= 0; --level) {
      up->push_back(torch::nn::ConvTranspose2d(
          torch::nn::ConvTranspose2dOptions(width(level + 1), width(level), 2).stride(2)));
      decoder->push_back(double_conv(2 * width(level), width(level), options.bias));
    }
    head = register_module("head",
                           torch::nn::Conv2d(torch::nn::Conv2dOptions(width(0), options.num_classes, 1)));
    init_like_torchvision(*this);
  }

  at::Tensor forward(at::Tensor x) override {
    check_images("unet", x, options_.in_channels);
    const int64_t multiple = int64_t{1} << options_.depth;
    if (x.size(2) % multiple != 0 || x.size(3) % multiple != 0) {
      fail("models.forward", "expected height and width that are multiples of ", multiple,
           " for 'unet', got ", x.sizes());
    }
    std::vector<at::Tensor> skips;
    for (const auto& level : *encoder) {
      skips.push_back(level->as<torch::nn::Sequential>()->forward(x));
      x = torch::max_pool2d(skips.back(), 2);
    }
    x = bottleneck->forward(x);
    for (size_t i = 0; i < up->size(); ++i) {
      x = up[i]->as<torch::nn::ConvTranspose2d>()->forward(x);
      x = decoder[i]->as<torch::nn::Sequential>()->forward(torch::cat({skips[skips.size() - 1 - i], x}, 1));
    }
    return head(x);
  }

 private:
  int64_t width(int64_t level) const { return options_.width << level; }

  UNetOptions options_;
  torch::nn::ModuleList encoder{nullptr}, up{nullptr}, decoder{nullptr};
  torch::nn::Sequential bottleneck{nullptr};
  torch::nn::Conv2d head{nullptr};
};

}  // namespace

UNetOptions UNetOptions::spell() {
  return {.in_channels = 3, .num_classes = 9, .width = 64, .depth = 3, .bias = true};
}

std::shared_ptr<ImageModel> make_unet(const UNetOptions& options) {
  check_option("unet", "in_channels", options.in_channels);
  check_option("unet", "num_classes", options.num_classes);
  check_option("unet", "width", options.width);
  check_option("unet", "depth", options.depth);
  if (options.depth > 8) fail("models.make_unet", "expected depth <= 8, got ", options.depth);
  return std::make_shared<UNet>(options);
}

}  // namespace ulp::models
