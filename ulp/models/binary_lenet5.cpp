#include "ulp/models/binary_lenet5.h"

#include "ulp/models/layers.h"
#include "ulp/quant/binary/layers.h"

namespace ulp::models {

namespace {

constexpr int64_t kFirst = 32, kSecond = 64, kHidden1 = 512, kHidden2 = 256;

class BinaryLeNet5 final : public ImageModel {
 public:
  explicit BinaryLeNet5(const LeNet5Options& options) : in_channels_(options.in_channels) {
    const auto [padding, side] = lenet5_sizes(options.image_size);
    using torch::nn::BatchNorm1d, torch::nn::BatchNorm2d;
    conv1 = register_module(
        "conv1",
        torch::nn::Conv2d(torch::nn::Conv2dOptions(in_channels_, kFirst, 5).padding(padding).bias(false)));
    bn1 = register_module("bn1", BatchNorm2d(kFirst));
    conv2 = register_module("conv2",
                            quant::BinaryConv2d(torch::nn::Conv2dOptions(kFirst, kSecond, 5).bias(false)));
    bn2 = register_module("bn2", BatchNorm2d(kSecond));
    fc1 = register_module("fc1", binary_linear(kSecond * side * side, kHidden1));
    bn3 = register_module("bn3", BatchNorm1d(kHidden1));
    fc2 = register_module("fc2", binary_linear(kHidden1, kHidden2));
    bn4 = register_module("bn4", BatchNorm1d(kHidden2));
    fc3 = register_module("fc3", torch::nn::Linear(kHidden2, options.num_classes));
  }

  at::Tensor forward(at::Tensor x) override {
    check_images("binary_lenet5", x, in_channels_);
    x = torch::max_pool2d(bn1(conv1(x)), 2);
    x = torch::max_pool2d(bn2(conv2(x)), 2);
    x = bn3(fc1(torch::flatten(x, 1)));
    return fc3(torch::relu(bn4(fc2(x))));
  }

 private:
  static quant::BinaryLinear binary_linear(int64_t in, int64_t out) {
    return quant::BinaryLinear(torch::nn::LinearOptions(in, out).bias(false));
  }

  int64_t in_channels_;
  torch::nn::Conv2d conv1{nullptr};
  quant::BinaryConv2d conv2{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
  quant::BinaryLinear fc1{nullptr}, fc2{nullptr};
  torch::nn::BatchNorm1d bn3{nullptr}, bn4{nullptr};
  torch::nn::Linear fc3{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_binary_lenet5(const LeNet5Options& options) {
  check_option("binary_lenet5", "in_channels", options.in_channels);
  check_option("binary_lenet5", "image_size", options.image_size, 12);
  check_option("binary_lenet5", "num_classes", options.num_classes);
  return std::make_shared<BinaryLeNet5>(options);
}

}  // namespace ulp::models
