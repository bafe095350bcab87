#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "ulp/app/bench/bench_amp_parts.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/bert.h"
#include "ulp/models/mlp.h"
#include "ulp/models/unet.h"

namespace ulp::app {

namespace {

constexpr int kBatches = 4;

at::Tensor forward_images(torch::nn::Module& model, const at::Tensor& images) {
  return dynamic_cast<models::ImageModel&>(model).forward(images);
}

at::Tensor forward_tokens(torch::nn::Module& model, const at::Tensor& tokens) {
  return dynamic_cast<models::TextModel&>(model).forward(tokens);
}

std::shared_ptr<graph::GraphModule> capture_images(torch::nn::Module& model, const at::Tensor& images) {
  return capture(dynamic_cast<models::ImageModel&>(model), {images});
}

std::shared_ptr<graph::GraphModule> capture_tokens(torch::nn::Module& model, const at::Tensor& tokens) {
  return capture(dynamic_cast<models::TextModel&>(model), {tokens});
}

/// Ten classes, told apart by which of ten random directions a picture of noise has most of.
AmpWorkload feed_forward(const AmpBenchOptions& options) {
  const int64_t batch = options.size == AmpSize::quick ? 32 : 128;
  AmpWorkload work{.shape = "B=" + std::to_string(batch) + ", 784-256-128-10",
                   .make = [] { return models::make_mlp(); },
                   .forward = forward_images,
                   .capture = capture_images,
                   .batches = {},
                   .learning_rate = 1e-3};
  const at::Tensor directions = torch::randn({784, 10});
  for (int i = 0; i < kBatches; ++i) {
    const at::Tensor images = torch::randn({batch, 1, 28, 28});
    work.batches.push_back({images, images.flatten(1).matmul(directions).argmax(1)});
  }
  return work;
}

/// Smooth random pictures; the class of a pixel is which third of its range two of its colours lie in.
AmpWorkload unet(const AmpBenchOptions& options) {
  const bool quick = options.size == AmpSize::quick;
  const int64_t batch = options.size == AmpSize::full ? 4 : 1, side = quick ? 32 : 128;
  AmpWorkload work{
      .shape = "B=" + std::to_string(batch) + ", " + std::to_string(side) + "x" + std::to_string(side),
      .make =
          [] {
            auto model = models::make_unet(models::UNetOptions::spell());
            models::to_channels_last(*model);
            return model;
          },
      .forward = forward_images,
      .capture = capture_images,
      .batches = {},
      .learning_rate = 1e-3};
  for (int i = 0; i < kBatches; ++i) {
    const at::Tensor coarse = torch::randn({batch, 3, 8, 8});
    const at::Tensor images = at::upsample_bilinear2d(coarse, {side, side}, /*align_corners=*/false);
    const at::Tensor thirds = images.gt(-0.3).to(at::kLong) + images.gt(0.3).to(at::kLong);
    work.batches.push_back(
        {images.contiguous(at::MemoryFormat::ChannelsLast), thirds.select(1, 0) * 3 + thirds.select(1, 1)});
  }
  return work;
}

/// Random tokens; the class is whether the first token is in the lower or the upper half of the vocabulary.
AmpWorkload bert(const AmpBenchOptions& options) {
  const bool quick = options.size == AmpSize::quick;
  const int64_t batch = options.size == AmpSize::full ? 16 : 4, length = quick ? 32 : 128;
  models::BertConfig config = quick ? models::BertConfig::tiny() : models::BertConfig::base();
  config.dropout = options.dropout;
  config.attention_dropout = options.attention_dropout;
  config.padding_token = -1;
  AmpWorkload work{.shape = "B=" + std::to_string(batch) + ", S=" + std::to_string(length),
                   .make = [config] { return models::make_bert(config); },
                   .forward = forward_tokens,
                   .capture = capture_tokens,
                   .batches = {},
                   .learning_rate = quick ? 1e-3 : 5e-5};
  for (int i = 0; i < kBatches; ++i) {
    const at::Tensor tokens = torch::randint(0, config.vocab_size, {batch, length}, at::kLong);
    work.batches.push_back({tokens, tokens.select(1, 0).ge(config.vocab_size / 2).to(at::kLong)});
  }
  return work;
}

}  // namespace

AmpWorkload make_workload(AmpNetwork network, const AmpBenchOptions& options) {
  torch::manual_seed(options.seed);
  switch (network) {
    case AmpNetwork::feed_forward:
      return feed_forward(options);
    case AmpNetwork::unet:
      return unet(options);
    default:
      return bert(options);
  }
}

}  // namespace ulp::app
