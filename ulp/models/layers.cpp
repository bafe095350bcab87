#include "ulp/models/layers.h"

#include "ulp/base/error.h"
#include "ulp/libtorch/conv_guard.h"
#include "ulp/models/text_model.h"

namespace ulp::models {

ImageModel::~ImageModel() = default;
TextModel::~TextModel() = default;

void to_channels_last(torch::nn::Module& model) {
  for (at::Tensor& parameter : model.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
}

at::Tensor Conv2dImpl::forward(const at::Tensor& input) {
  return libtorch::guarded_conv2d(*this, input);
}

Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups) {
  return Conv2d(torch::nn::Conv2dOptions(in, out, kernel)
                    .stride(stride)
                    .padding((kernel - 1) / 2)
                    .groups(groups)
                    .bias(false));
}

BasicConv2dImpl::BasicConv2dImpl(int64_t in, int64_t out, Size kernel, int64_t stride)
    : BasicConv2dImpl(in, out, kernel, stride, Size({((*kernel)[0] - 1) / 2, ((*kernel)[1] - 1) / 2})) {}

BasicConv2dImpl::BasicConv2dImpl(int64_t in, int64_t out, Size kernel, int64_t stride, Size padding) {
  const auto options = torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false);
  conv = register_module("conv", Conv2d(options));
  bn = register_module("bn", torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(out).eps(0.001)));
}

at::Tensor BasicConv2dImpl::forward(const at::Tensor& x) {
  return bn(conv(x)).relu_();
}

void init_normal(torch::nn::Module& model, double deviation) {
  torch::NoGradGuard no_grad;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (auto* layer = dynamic_cast<torch::nn::Conv2dImpl*>(module.get())) {
      layer->weight.normal_(0.0, deviation);
    } else if (auto* linear = dynamic_cast<torch::nn::LinearImpl*>(module.get())) {
      linear->weight.normal_(0.0, deviation);
    }
  }
}

void init_like_torchvision(torch::nn::Module& model) {
  torch::NoGradGuard no_grad;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (auto* layer = dynamic_cast<torch::nn::Conv2dImpl*>(module.get())) {
      torch::nn::init::kaiming_normal_(layer->weight, 0.0, torch::kFanOut, torch::kReLU);
      if (layer->bias.defined()) layer->bias.zero_();
    } else if (auto* norm = dynamic_cast<torch::nn::BatchNorm2dImpl*>(module.get())) {
      norm->weight.fill_(1.0);
      norm->bias.zero_();
    }
  }
}

void check_option(const char* model, const char* option, int64_t value, int64_t least) {
  if (value < least) {
    fail("models.make_model", "expected ", option, " >= ", least, " for '", model, "', got ", value);
  }
}

void check_images(const char* model, const at::Tensor& images, int64_t channels) {
  if (images.dim() == 4 && images.size(1) == channels) return;
  fail("models.forward", "expected images of shape (N, ", channels, ", H, W) for '", model, "', got ",
       images.sizes());
}

}  // namespace ulp::models
