#include "ulp/models/mobilenet_v2.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/models/layers.h"

namespace ulp::models {

namespace {

/// Channels as the paper's authors round them: to a multiple of 8, never losing more than a tenth.
int64_t round_channels(double channels) {
  const auto rounded = std::max<int64_t>(8, static_cast<int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(rounded) < 0.9 * channels ? rounded + 8 : rounded;
}

/// A Sequential that another Sequential can hold: the plain one has a templated forward.
class ConvBnRelu6Impl : public torch::nn::SequentialImpl {
 public:
  using torch::nn::SequentialImpl::SequentialImpl;
  at::Tensor forward(const at::Tensor& x) { return torch::nn::SequentialImpl::forward(x); }
};

std::shared_ptr<ConvBnRelu6Impl> conv_bn_relu6(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                                               int64_t groups) {
  return std::make_shared<ConvBnRelu6Impl>(conv(in, out, kernel, stride, groups), torch::nn::BatchNorm2d(out),
                                           torch::nn::ReLU6(torch::nn::ReLU6Options().inplace(true)));
}

class InvertedResidualImpl : public torch::nn::Module {
 public:
  InvertedResidualImpl(int64_t in, int64_t out, int64_t stride, int64_t expand)
      : skip_(stride == 1 && in == out), conv_(register_module("conv", torch::nn::Sequential())) {
    const int64_t hidden = in * expand;
    if (expand != 1) conv_->push_back(conv_bn_relu6(in, hidden, 1, 1, 1));
    conv_->push_back(conv_bn_relu6(hidden, hidden, 3, stride, hidden));
    conv_->push_back(conv(hidden, out, 1));
    conv_->push_back(torch::nn::BatchNorm2d(out));
  }

  at::Tensor forward(const at::Tensor& x) { return skip_ ? x + conv_->forward(x) : conv_->forward(x); }

 private:
  bool skip_;
  torch::nn::Sequential conv_;
};

struct Stage {
  int64_t expand, channels, blocks, stride;
};

class MobileNetV2 final : public ImageModel {
 public:
  explicit MobileNetV2(const MobileNetV2Options& options) : in_channels_(options.in_channels) {
    const bool small = options.small_input;
    const Stage stages[] = {{1, 16, 1, 1},
                            {6, 24, 2, small ? 1 : 2},
                            {6, 32, 3, small ? 1 : 2},
                            {6, 64, 4, 2},
                            {6, 96, 3, 1},
                            {6, 160, 3, 2},
                            {6, 320, 1, 1}};
    const auto width = [&](int64_t channels) {
      return round_channels(static_cast<double>(channels) * options.width_mult);
    };
    features = register_module("features", torch::nn::Sequential());
    int64_t channels = width(32);
    features->push_back(conv_bn_relu6(options.in_channels, channels, 3, small ? 1 : 2, 1));
    for (const Stage& stage : stages) {
      for (int64_t block = 0; block < stage.blocks; ++block) {
        const int64_t out = width(stage.channels);
        features->push_back(std::make_shared<InvertedResidualImpl>(
            channels, out, block == 0 ? stage.stride : 1, stage.expand));
        channels = out;
      }
    }
    const int64_t last = round_channels(1280 * std::max(1.0, options.width_mult));
    features->push_back(conv_bn_relu6(channels, last, 1, 1, 1));
    torch::nn::Linear linear(last, options.num_classes);
    classifier =
        register_module("classifier", torch::nn::Sequential(torch::nn::Dropout(options.dropout), linear));
    init_like_torchvision(*this);
    torch::NoGradGuard no_grad;
    linear->weight.normal_(0.0, 0.01);
    linear->bias.zero_();
  }

  at::Tensor forward(at::Tensor x) override {
    check_images("mobilenet_v2", x, in_channels_);
    x = torch::adaptive_avg_pool2d(features->forward(x), {1, 1});
    return classifier->forward(torch::flatten(x, 1));
  }

 private:
  int64_t in_channels_;
  torch::nn::Sequential features{nullptr}, classifier{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_mobilenet_v2(const MobileNetV2Options& options) {
  check_option("mobilenet_v2", "in_channels", options.in_channels);
  check_option("mobilenet_v2", "num_classes", options.num_classes);
  if (!(options.width_mult > 0)) {
    fail("models.make_mobilenet_v2", "expected width_mult > 0, got ", options.width_mult);
  }
  return std::make_shared<MobileNetV2>(options);
}

}  // namespace ulp::models
