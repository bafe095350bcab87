#include "ulp/models/resnet.h"

#include "ulp/base/error.h"
#include "ulp/models/layers.h"

namespace ulp::models {

namespace {

using torch::nn::BatchNorm2d;

/// A projection for the skip path, where the block changes the shape; else empty.
torch::nn::Sequential projection(int64_t in, int64_t out, int64_t stride) {
  if (in == out && stride == 1) return nullptr;
  return torch::nn::Sequential(conv(in, out, 1, stride), BatchNorm2d(out));
}

struct Plan {
  std::string name;
  int64_t in_channels, num_classes;
  int64_t stem_kernel, stem_stride;
  bool stem_pool;
  std::vector<int64_t> widths, blocks;
  int64_t groups = 1, group_width = 64;  // of a bottleneck's 3x3 convolution, for a stage width of 64
};

class BasicBlockImpl : public torch::nn::Module {
 public:
  static constexpr int64_t kExpansion = 1;

  BasicBlockImpl(int64_t in, int64_t width, int64_t stride, const Plan&) {
    conv1 = register_module("conv1", conv(in, width, 3, stride));
    bn1 = register_module("bn1", BatchNorm2d(width));
    conv2 = register_module("conv2", conv(width, width, 3));
    bn2 = register_module("bn2", BatchNorm2d(width));
    downsample = projection(in, width, stride);
    if (!downsample.is_empty()) register_module("downsample", downsample);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = bn1(conv1(x)).relu_();
    y = bn2(conv2(y));
    y += downsample.is_empty() ? x : downsample->forward(x);
    return y.relu_();
  }

 private:
  Conv2d conv1{nullptr}, conv2{nullptr};
  BatchNorm2d bn1{nullptr}, bn2{nullptr};
  torch::nn::Sequential downsample{nullptr};
};

class BottleneckImpl : public torch::nn::Module {
 public:
  static constexpr int64_t kExpansion = 4;

  BottleneckImpl(int64_t in, int64_t width, int64_t stride, const Plan& plan) {
    const int64_t out = width * kExpansion, inner = width * plan.group_width / 64 * plan.groups;
    conv1 = register_module("conv1", conv(in, inner, 1));
    bn1 = register_module("bn1", BatchNorm2d(inner));
    conv2 = register_module("conv2", conv(inner, inner, 3, stride, plan.groups));
    bn2 = register_module("bn2", BatchNorm2d(inner));
    conv3 = register_module("conv3", conv(inner, out, 1));
    bn3 = register_module("bn3", BatchNorm2d(out));
    downsample = projection(in, out, stride);
    if (!downsample.is_empty()) register_module("downsample", downsample);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = bn1(conv1(x)).relu_();
    y = bn2(conv2(y)).relu_();
    y = bn3(conv3(y));
    y += downsample.is_empty() ? x : downsample->forward(x);
    return y.relu_();
  }

 private:
  Conv2d conv1{nullptr}, conv2{nullptr}, conv3{nullptr};
  BatchNorm2d bn1{nullptr}, bn2{nullptr}, bn3{nullptr};
  torch::nn::Sequential downsample{nullptr};
};

template <typename Block>
class ResNet final : public ImageModel {
 public:
  explicit ResNet(const Plan& plan)
      : name_(plan.name), in_channels_(plan.in_channels), stem_pool_(plan.stem_pool) {
    int64_t channels = plan.widths.front();
    conv1 = register_module("conv1", conv(plan.in_channels, channels, plan.stem_kernel, plan.stem_stride));
    bn1 = register_module("bn1", BatchNorm2d(channels));
    for (size_t stage = 0; stage < plan.widths.size(); ++stage) {
      torch::nn::Sequential layer;
      for (int64_t block = 0; block < plan.blocks[stage]; ++block) {
        const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
        layer->push_back(std::make_shared<Block>(channels, plan.widths[stage], stride, plan));
        channels = plan.widths[stage] * Block::kExpansion;
      }
      stages_.push_back(register_module("layer" + std::to_string(stage + 1), layer));
    }
    fc = register_module("fc", torch::nn::Linear(channels, plan.num_classes));
    init_like_torchvision(*this);
  }

  at::Tensor forward(at::Tensor x) override {
    check_images(name_.c_str(), x, in_channels_);
    x = bn1(conv1(x)).relu_();
    if (stem_pool_) x = torch::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    for (auto& stage : stages_) x = stage->forward(x);
    return fc(torch::flatten(torch::adaptive_avg_pool2d(x, {1, 1}), 1));
  }

 private:
  std::string name_;
  int64_t in_channels_;
  bool stem_pool_;
  Conv2d conv1{nullptr};
  BatchNorm2d bn1{nullptr};
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Linear fc{nullptr};
};

Plan imagenet_plan(const char* name, const ResNetOptions& options, std::vector<int64_t> blocks) {
  check_option(name, "in_channels", options.in_channels);
  check_option(name, "num_classes", options.num_classes);
  const bool small = options.small_input;
  return {name,   options.in_channels, options.num_classes, small ? 3 : 7, small ? 1 : 2,
          !small, {64, 128, 256, 512}, std::move(blocks)};
}

}  // namespace

std::shared_ptr<ImageModel> make_resnet18(const ResNetOptions& options) {
  return std::make_shared<ResNet<BasicBlockImpl>>(imagenet_plan("resnet18", options, {2, 2, 2, 2}));
}

std::shared_ptr<ImageModel> make_resnet50(const ResNetOptions& options) {
  return std::make_shared<ResNet<BottleneckImpl>>(imagenet_plan("resnet50", options, {3, 4, 6, 3}));
}

std::shared_ptr<ImageModel> make_resnext50_32x4d(const ResNetOptions& options) {
  Plan plan = imagenet_plan("resnext50_32x4d", options, {3, 4, 6, 3});
  plan.groups = 32;
  plan.group_width = 4;
  return std::make_shared<ResNet<BottleneckImpl>>(plan);
}

std::shared_ptr<ImageModel> make_resnet20(const ResNet20Options& options) {
  check_option(options.name.c_str(), "in_channels", options.in_channels);
  check_option(options.name.c_str(), "num_classes", options.num_classes);
  check_option(options.name.c_str(), "stem_stride", options.stem_stride);
  if (options.widths.empty() || options.widths.size() != options.blocks.size()) {
    fail("models.make_resnet20", "expected one entry of widths and blocks for each stage, got ",
         options.widths.size(), " widths and ", options.blocks.size(), " blocks");
  }
  for (int64_t width : options.widths) check_option(options.name.c_str(), "widths", width);
  for (int64_t blocks : options.blocks) check_option(options.name.c_str(), "blocks", blocks);
  return std::make_shared<ResNet<BasicBlockImpl>>(Plan{options.name.c_str(), options.in_channels,
                                                       options.num_classes, 3, options.stem_stride, false,
                                                       options.widths, options.blocks});
}

}  // namespace ulp::models
