#include "ulp/models/lenet5.h"

#include "ulp/models/layers.h"

namespace ulp::models {

namespace {

class LeNet5 final : public ImageModel {
 public:
  explicit LeNet5(const LeNet5Options& options) : in_channels_(options.in_channels) {
    const auto [padding, side] = lenet5_sizes(options.image_size);
    conv1 = register_module("conv1",
                            torch::nn::Conv2d(torch::nn::Conv2dOptions(in_channels_, 6, 5).padding(padding)));
    conv2 = register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 16, 5)));
    fc1 = register_module("fc1", torch::nn::Linear(16 * side * side, 120));
    fc2 = register_module("fc2", torch::nn::Linear(120, 84));
    fc3 = register_module("fc3", torch::nn::Linear(84, options.num_classes));
  }

  at::Tensor forward(at::Tensor x) override {
    check_images("lenet5", x, in_channels_);
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    x = torch::relu(fc1(torch::flatten(x, 1)));
    return fc3(torch::relu(fc2(x)));
  }

 private:
  int64_t in_channels_;
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Linear fc1{nullptr}, fc2{nullptr}, fc3{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_lenet5(const LeNet5Options& options) {
  check_option("lenet5", "in_channels", options.in_channels);
  check_option("lenet5", "image_size", options.image_size, 12);
  check_option("lenet5", "num_classes", options.num_classes);
  return std::make_shared<LeNet5>(options);
}

}  // namespace ulp::models
