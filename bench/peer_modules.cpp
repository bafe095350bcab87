#include "bench/peer_modules.h"

#include <torch/torch.h>

namespace ulp::bench {

namespace {

namespace nn = torch::nn;
using at::Tensor;

enum class Act { none, relu, hardswish, silu };

Tensor activate(Act act, const Tensor& x) {
  switch (act) {
    case Act::relu:
      return torch::relu(x);
    case Act::hardswish:
      return torch::hardswish(x);
    case Act::silu:
      return torch::silu(x);
    case Act::none:
      break;
  }
  return x;
}

/// Convolution, batch norm, activation.
struct ConvNormImpl : nn::Module {
  ConvNormImpl(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups, Act activation)
      : act(activation) {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(in, out, kernel)
                                                  .stride(stride)
                                                  .padding(kernel / 2)
                                                  .groups(groups)
                                                  .bias(false)));
    norm = register_module("norm", nn::BatchNorm2d(out));
  }
  Tensor forward(const Tensor& x) { return activate(act, norm(conv(x))); }

  Act act;
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d norm{nullptr};
};
TORCH_MODULE(ConvNorm);

/// A gate for each channel from the mean of the image.
struct SqueezeImpl : nn::Module {
  SqueezeImpl(int64_t channels, int64_t squeezed, Act activation, bool hard_gate)
      : act(activation), hard(hard_gate) {
    reduce = register_module("fc1", nn::Conv2d(nn::Conv2dOptions(channels, squeezed, 1)));
    expand = register_module("fc2", nn::Conv2d(nn::Conv2dOptions(squeezed, channels, 1)));
  }
  Tensor forward(const Tensor& x) {
    const Tensor gate = expand(activate(act, reduce(torch::adaptive_avg_pool2d(x, {1, 1}))));
    return x * (hard ? torch::hardsigmoid(gate) : torch::sigmoid(gate));
  }

  Act act;
  bool hard;
  nn::Conv2d reduce{nullptr}, expand{nullptr};
};
TORCH_MODULE(Squeeze);

struct BlockSizes {
  int64_t in, hidden, out, kernel, stride;
  int64_t squeezed;  ///< channels between the gate's layers; 0: no gate
  Act act, squeeze_act;
  bool hard_gate;
};

/// Wider, depthwise, gated, narrower; the input is added where it fits.
struct InvertedResidualImpl : nn::Module {
  explicit InvertedResidualImpl(const BlockSizes& s) : skips(s.stride == 1 && s.in == s.out) {
    if (s.hidden != s.in) layers->push_back(ConvNorm(s.in, s.hidden, 1, 1, 1, s.act));
    layers->push_back(ConvNorm(s.hidden, s.hidden, s.kernel, s.stride, s.hidden, s.act));
    if (s.squeezed > 0) layers->push_back(Squeeze(s.hidden, s.squeezed, s.squeeze_act, s.hard_gate));
    layers->push_back(ConvNorm(s.hidden, s.out, 1, 1, 1, Act::none));
    register_module("block", layers);
  }
  Tensor forward(const Tensor& x) { return skips ? x + layers->forward(x) : layers->forward(x); }

  bool skips;
  nn::Sequential layers;
};
TORCH_MODULE(InvertedResidual);

/// Channels as MobileNet's authors round them.
int64_t eighths(double channels) {
  const auto rounded = std::max<int64_t>(8, static_cast<int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(rounded) < 0.9 * channels ? rounded + 8 : rounded;
}

/// Blocks, the mean of the image, and linear layers with an activation between them.
struct MobileImpl : models::ImageModel {
  explicit MobileImpl(Act activation) : act(activation) {
    register_module("features", features);
    register_module("classifier", classifier);
  }
  Tensor forward(Tensor images) override {
    Tensor x = torch::adaptive_avg_pool2d(features->forward(images), {1, 1}).flatten(1);
    for (size_t i = 0; i < classifier->size(); ++i) {
      x = classifier[i]->as<nn::Linear>()->forward(i == 0 ? x : activate(act, x));
    }
    return x;
  }

  Act act;
  nn::Sequential features;
  nn::ModuleList classifier;
};

struct VitBlockImpl : nn::Module {
  VitBlockImpl(int64_t width, int64_t head_count) : heads(head_count) {
    const nn::LayerNormOptions norm = nn::LayerNormOptions({width}).eps(1e-6);
    norm1 = register_module("norm1", nn::LayerNorm(norm));
    qkv = register_module("qkv", nn::Linear(width, 3 * width));
    proj = register_module("proj", nn::Linear(width, width));
    norm2 = register_module("norm2", nn::LayerNorm(norm));
    fc1 = register_module("fc1", nn::Linear(width, 4 * width));
    fc2 = register_module("fc2", nn::Linear(4 * width, width));
  }
  Tensor attend(const Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    const Tensor all = qkv(x).reshape({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    const Tensor mixed = at::scaled_dot_product_attention(all[0], all[1], all[2]);
    return proj(mixed.transpose(1, 2).reshape({batch, length, width}));
  }
  Tensor forward(Tensor x) {
    x = x + attend(norm1(x));
    return x + fc2(torch::gelu(fc1(norm2(x))));
  }

  int64_t heads;
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear qkv{nullptr}, proj{nullptr}, fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(VitBlock);

struct VitImpl : models::ImageModel {
  static constexpr int64_t kWidth = 192, kHeads = 3, kLayers = 12, kPatch = 16, kPatches = 196;

  VitImpl() {
    patches = register_module("patch_embed", nn::Conv2d(nn::Conv2dOptions(3, kWidth, kPatch).stride(kPatch)));
    token = register_parameter("cls_token", torch::randn({1, 1, kWidth}) * 0.02);
    positions = register_parameter("pos_embed", torch::randn({1, kPatches + 1, kWidth}) * 0.02);
    for (int64_t i = 0; i < kLayers; ++i) blocks->push_back(VitBlock(kWidth, kHeads));
    register_module("blocks", blocks);
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth}).eps(1e-6)));
    head = register_module("head", nn::Linear(kWidth, 1000));
  }
  Tensor forward(Tensor images) override {
    Tensor x = patches(images).flatten(2).transpose(1, 2);
    x = torch::cat({token.expand({x.size(0), -1, -1}), x}, 1) + positions;
    return head(norm(blocks->forward(x)).select(1, 0));
  }

  nn::Conv2d patches{nullptr};
  Tensor token, positions;
  nn::Sequential blocks;
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
};

}  // namespace

std::shared_ptr<models::ImageModel> make_mobilenet_v3() {
  struct Row {
    int64_t kernel, hidden, out, stride;
    bool gate;
    Act act;
  };
  using enum Act;
  const Row rows[] = {{3, 16, 16, 1, false, relu},       {3, 64, 24, 2, false, relu},
                      {3, 72, 24, 1, false, relu},       {5, 72, 40, 2, true, relu},
                      {5, 120, 40, 1, true, relu},       {5, 120, 40, 1, true, relu},
                      {3, 240, 80, 2, false, hardswish}, {3, 200, 80, 1, false, hardswish},
                      {3, 184, 80, 1, false, hardswish}, {3, 184, 80, 1, false, hardswish},
                      {3, 480, 112, 1, true, hardswish}, {3, 672, 112, 1, true, hardswish},
                      {5, 672, 160, 2, true, hardswish}, {5, 960, 160, 1, true, hardswish},
                      {5, 960, 160, 1, true, hardswish}};
  const auto model = std::make_shared<MobileImpl>(hardswish);
  model->features->push_back(ConvNorm(3, 16, 3, 2, 1, hardswish));
  int64_t channels = 16;
  for (const Row& row : rows) {
    const int64_t squeezed = row.gate ? eighths(static_cast<double>(row.hidden) / 4) : 0;
    model->features->push_back(InvertedResidual(
        BlockSizes{channels, row.hidden, row.out, row.kernel, row.stride, squeezed, row.act, relu, true}));
    channels = row.out;
  }
  model->features->push_back(ConvNorm(channels, 960, 1, 1, 1, hardswish));
  model->classifier->push_back(nn::Linear(960, 1280));
  model->classifier->push_back(nn::Linear(1280, 1000));
  return model;
}

std::shared_ptr<models::ImageModel> make_efficientnet_b0() {
  struct Row {
    int64_t expand, kernel, stride, out, blocks;
  };
  const Row rows[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                      {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
  const auto model = std::make_shared<MobileImpl>(Act::silu);
  model->features->push_back(ConvNorm(3, 32, 3, 2, 1, Act::silu));
  int64_t channels = 32;
  for (const Row& row : rows) {
    for (int64_t block = 0; block < row.blocks; ++block) {
      const int64_t hidden = channels * row.expand, stride = block == 0 ? row.stride : 1;
      model->features->push_back(InvertedResidual(BlockSizes{channels, hidden, row.out, row.kernel, stride,
                                                             channels / 4, Act::silu, Act::silu, false}));
      channels = row.out;
    }
  }
  model->features->push_back(ConvNorm(channels, 1280, 1, 1, 1, Act::silu));
  model->classifier->push_back(nn::Linear(1280, 1000));
  return model;
}

std::shared_ptr<models::ImageModel> make_vit_tiny() {
  return std::make_shared<VitImpl>();
}

}  // namespace ulp::bench
