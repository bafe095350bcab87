#include "ulp/models/googlenet.h"

#include "ulp/base/error.h"
#include "ulp/models/layers.h"

namespace ulp::models {

namespace {

using torch::nn::Sequential;

/// Channels of a block's branches: 1x1; 1x1 before the first 3x3, and that; the same for the second; after
/// the pooling.
struct Widths {
  int64_t one, three_in, three, second_in, second, pool;
  int64_t total() const { return one + three + second + pool; }
};

class InceptionImpl : public torch::nn::Module {
 public:
  InceptionImpl(int64_t in, const Widths& w) {
    branch1 = register_module("branch1", BasicConv2d(in, w.one, 1));
    branch2 = register_module(
        "branch2", Sequential(BasicConv2d(in, w.three_in, 1), BasicConv2d(w.three_in, w.three, 3)));
    // 5x5 in the paper; torchvision has the 3x3 of the first implementation.
    branch3 = register_module(
        "branch3", Sequential(BasicConv2d(in, w.second_in, 1), BasicConv2d(w.second_in, w.second, 3)));
    const auto pool = torch::nn::MaxPool2dOptions(3).stride(1).padding(1).ceil_mode(true);
    branch4 = register_module("branch4", Sequential(torch::nn::MaxPool2d(pool), BasicConv2d(in, w.pool, 1)));
  }

  at::Tensor forward(const at::Tensor& x) {
    return torch::cat({branch1(x), branch2->forward(x), branch3->forward(x), branch4->forward(x)}, 1);
  }

 private:
  BasicConv2d branch1{nullptr};
  Sequential branch2{nullptr}, branch3{nullptr}, branch4{nullptr};
};
TORCH_MODULE(Inception);

class GoogLeNetAuxImpl : public torch::nn::Module {
 public:
  GoogLeNetAuxImpl(int64_t in, const GoogLeNetOptions& options) : dropout_(options.aux_dropout) {
    conv = register_module("conv", BasicConv2d(in, 128, 1));
    fc1 = register_module("fc1", torch::nn::Linear(128 * 4 * 4, 1024));
    fc2 = register_module("fc2", torch::nn::Linear(1024, options.num_classes));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor features = torch::flatten(conv(torch::adaptive_avg_pool2d(x, {4, 4})), 1);
    return fc2(torch::dropout(fc1(features).relu_(), dropout_, is_training()));
  }

 private:
  double dropout_;
  BasicConv2d conv{nullptr};
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(GoogLeNetAux);

class GoogLeNet final : public AuxImageModel {
 public:
  explicit GoogLeNet(const GoogLeNetOptions& options) : options_(options) {
    conv1 = register_module("conv1", BasicConv2d(options.in_channels, 64, options.small_input ? 3 : 7,
                                                 options.small_input ? 1 : 2));
    conv2 = register_module("conv2", BasicConv2d(64, 64, 1));
    conv3 = register_module("conv3", BasicConv2d(64, 192, 3));
    int64_t channels = 192;
    const auto block = [&](const char* name, const Widths& widths) {
      Inception made = register_module(name, Inception(channels, widths));
      channels = widths.total();
      return made;
    };
    stage3_ = {block("inception3a", {64, 96, 128, 16, 32, 32}),
               block("inception3b", {128, 128, 192, 32, 96, 64})};
    stage4_ = {
        block("inception4a", {192, 96, 208, 16, 48, 64}), block("inception4b", {160, 112, 224, 24, 64, 64}),
        block("inception4c", {128, 128, 256, 24, 64, 64}), block("inception4d", {112, 144, 288, 32, 64, 64}),
        block("inception4e", {256, 160, 320, 32, 128, 128})};
    stage5_ = {block("inception5a", {256, 160, 320, 32, 128, 128}),
               block("inception5b", {384, 192, 384, 48, 128, 128})};
    if (options.aux_logits) {
      aux1 = register_module("aux1", GoogLeNetAux(512, options));
      aux2 = register_module("aux2", GoogLeNetAux(528, options));
    }
    fc = register_module("fc", torch::nn::Linear(channels, options.num_classes));
    init_normal(*this, 0.01);
  }

  at::Tensor forward(at::Tensor images) override { return run(images, nullptr); }

  AuxLogits forward_with_aux(at::Tensor images) override {
    if (!options_.aux_logits)
      fail("models.forward_with_aux", "expected 'googlenet' made with aux_logits, got without");
    AuxLogits result;
    result.logits = run(images, &result.auxiliary);
    return result;
  }

 private:
  static at::Tensor half(const at::Tensor& x, int64_t kernel) {
    return torch::max_pool2d(x, kernel, /*stride=*/2, /*padding=*/0, /*dilation=*/1, /*ceil_mode=*/true);
  }

  at::Tensor run(at::Tensor x, std::vector<at::Tensor>* auxiliary) {
    check_images("googlenet", x, options_.in_channels);
    x = conv1(x);
    if (!options_.small_input) x = half(x, 3);
    x = half(conv3(conv2(x)), 3);
    for (Inception& block : stage3_) x = block(x);
    x = half(x, 3);
    for (size_t i = 0; i < stage4_.size(); ++i) {
      x = stage4_[i](x);
      if (auxiliary && i == 0) auxiliary->push_back(aux1(x));
      if (auxiliary && i == 3) auxiliary->push_back(aux2(x));
    }
    x = half(x, 2);
    for (Inception& block : stage5_) x = block(x);
    x = torch::flatten(torch::adaptive_avg_pool2d(x, {1, 1}), 1);
    return fc(torch::dropout(x, options_.dropout, is_training()));
  }

  GoogLeNetOptions options_;
  BasicConv2d conv1{nullptr}, conv2{nullptr}, conv3{nullptr};
  std::vector<Inception> stage3_, stage4_, stage5_;
  GoogLeNetAux aux1{nullptr}, aux2{nullptr};
  torch::nn::Linear fc{nullptr};
};

}  // namespace

std::shared_ptr<AuxImageModel> make_googlenet(const GoogLeNetOptions& options) {
  check_option("googlenet", "in_channels", options.in_channels);
  check_option("googlenet", "num_classes", options.num_classes);
  return std::make_shared<GoogLeNet>(options);
}

}  // namespace ulp::models
