#include "ulp/models/binary_resnet.h"

#include "ulp/base/error.h"
#include "ulp/models/layers.h"
#include "ulp/quant/binary/layers.h"

namespace ulp::models {

namespace {

using torch::nn::BatchNorm2d;

quant::BinaryConv2d binary_conv(int64_t in, int64_t out, int64_t stride, bool of_signs) {
  return quant::BinaryConv2d(torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false),
                             quant::BinaryLayerOptions{.gradient = quant::SignGradient::approx},
                             std::vector<int64_t>(), of_signs);
}

/// bn(conv(sign(x))) + shortcut(x); with `react` the sign and what becomes of the sum have learned shifts.
class BinaryBlockImpl : public torch::nn::Module {
 public:
  BinaryBlockImpl(int64_t in, int64_t out, int64_t stride, bool react) {
    if (react) sign_ = register_module("sign", quant::RSign(in));
    conv_ = register_module("conv", binary_conv(in, out, stride, react));
    bn_ = register_module("bn", BatchNorm2d(out));
    if (react) curve_ = register_module("curve", quant::RPReLU(out));
    if (in == out && stride == 1) return;
    shortcut_ = torch::nn::Sequential();
    if (stride > 1) {
      shortcut_->push_back(
          torch::nn::AvgPool2d(torch::nn::AvgPool2dOptions(stride).ceil_mode(true).count_include_pad(false)));
    }
    shortcut_->push_back(conv(in, out, 1));
    shortcut_->push_back(BatchNorm2d(out));
    register_module("shortcut", shortcut_);
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y =
        bn_(conv_(sign_.is_empty() ? x : sign_(x))) + (shortcut_.is_empty() ? x : shortcut_->forward(x));
    return curve_.is_empty() ? y : curve_(y);
  }

 private:
  quant::RSign sign_{nullptr};
  quant::BinaryConv2d conv_{nullptr};
  BatchNorm2d bn_{nullptr};
  quant::RPReLU curve_{nullptr};
  torch::nn::Sequential shortcut_{nullptr};
};

class BinaryResNet final : public ImageModel {
 public:
  explicit BinaryResNet(const BinaryResNetOptions& options)
      : name_(options.name), in_channels_(options.in_channels), small_input_(options.small_input) {
    int64_t channels = options.widths.front();
    conv1_ =
        register_module("conv1", conv(in_channels_, channels, small_input_ ? 3 : 7, small_input_ ? 1 : 2));
    bn1_ = register_module("bn1", BatchNorm2d(channels));
    for (size_t stage = 0; stage < options.widths.size(); ++stage) {
      torch::nn::Sequential layer;
      for (int64_t i = 0; i < options.convolutions[stage]; ++i) {
        const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        layer->push_back(
            std::make_shared<BinaryBlockImpl>(channels, options.widths[stage], stride, options.react));
        channels = options.widths[stage];
      }
      stages_.push_back(register_module("layer" + std::to_string(stage + 1), layer));
    }
    fc_ = register_module("fc", torch::nn::Linear(channels, options.num_classes));
    init_like_torchvision(*this);
  }

  at::Tensor forward(at::Tensor x) override {
    check_images(name_.c_str(), x, in_channels_);
    x = bn1_(conv1_(x));
    if (!small_input_) x = torch::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    for (auto& stage : stages_) x = stage->forward(x);
    return fc_(torch::flatten(torch::adaptive_avg_pool2d(x, {1, 1}), 1));
  }

 private:
  std::string name_;
  int64_t in_channels_;
  bool small_input_;
  Conv2d conv1_{nullptr};
  BatchNorm2d bn1_{nullptr};
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Linear fc_{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_binary_resnet20(const BinaryResNetOptions& options) {
  const char* name = options.name.c_str();
  check_option(name, "in_channels", options.in_channels);
  check_option(name, "num_classes", options.num_classes);
  if (options.widths.empty() || options.widths.size() != options.convolutions.size()) {
    fail("models.make_binary_resnet20", "expected one entry of widths and convolutions for each stage, got ",
         options.widths.size(), " widths and ", options.convolutions.size(), " convolutions");
  }
  for (int64_t width : options.widths) check_option(name, "widths", width);
  for (int64_t count : options.convolutions) check_option(name, "convolutions", count);
  return std::make_shared<BinaryResNet>(options);
}

std::shared_ptr<ImageModel> make_birealnet(int64_t in_channels, int64_t num_classes, bool small_input) {
  return make_binary_resnet20({.name = "birealnet",
                               .in_channels = in_channels,
                               .num_classes = num_classes,
                               .widths = {64, 128, 256, 512},
                               .convolutions = {4, 4, 4, 4},
                               .small_input = small_input});
}

}  // namespace ulp::models
