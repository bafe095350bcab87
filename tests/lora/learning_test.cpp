// Adapters learn beside a base in codes as they do beside one of 16 bits.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/lora/add_lora.h"
#include "ulp/models/decoder.h"

namespace ulp::lora {
namespace {

using at::Tensor;

constexpr int64_t kLength = 16, kBatch = 4;

/// Tokens of a text in which each one follows from the one before it, but for one in eight; those behind the
/// tokens from `other` on follow by another rule.
Tensor drawn_text(int64_t count, int64_t other) {
  Tensor text = torch::randint(0, 64, {count});
  auto* t = text.mutable_data_ptr<int64_t>();
  for (int64_t i = 1; i < count; ++i)
    if (i % 8 != 0) t[i] = ((t[i - 1] < other ? 3 : 5) * t[i - 1] + 1) % 64;
  return text;
}

double learn(graph::GraphModule& model, torch::optim::Optimizer& optimizer, const Tensor& text) {
  const Tensor starts = torch::randint(0, text.size(0) - kLength - 1, {kBatch, 1});
  const Tensor tokens = text.index({starts + torch::arange(kLength + 1)});
  optimizer.zero_grad();
  Tensor logits;
  {
    const amp::Autocast bf16(torch::kCPU, torch::kBFloat16);
    logits = model.forward(tokens.narrow(1, 0, kLength));
  }
  const Tensor loss = torch::nn::functional::cross_entropy(logits.to(torch::kFloat).flatten(0, 1),
                                                           tokens.narrow(1, 1, kLength).flatten());
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

/// Mean losses of each part of the steps.
std::vector<double> curve_of(const std::shared_ptr<graph::GraphModule>& base, LoraBase format,
                             const Tensor& text) {
  constexpr int kSteps = 100, kParts = 4;
  torch::manual_seed(9);
  const auto model =
      add_lora(base, {.rank = 8, .alpha = 16, .target_modules = {"all-linear"}, .base = format});
  model->train();
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
  std::vector<double> means(kParts);
  for (int i = 0; i < kSteps; ++i)
    means[i * kParts / kSteps] += learn(*model, optimizer, text) * kParts / kSteps;
  return means;
}

TEST(LoraLearning, CodesLearnAsSixteenBitsDo) {
  torch::manual_seed(3);
  models::DecoderConfig config = models::DecoderConfig::tiny();
  config.vocab_size = 64;
  config.width = config.intermediate = 64;
  config.head_size = 16;
  config.max_length = kLength;
  const auto network = models::make_decoder(config);
  const auto base = ulp::capture(*network, {torch::ones({2, kLength}, torch::kLong)});
  const Tensor first = drawn_text(4000, 64), second = drawn_text(4000, 48);
  torch::optim::AdamW optimizer(base->parameters(), torch::optim::AdamWOptions(4e-3));
  for (int i = 0; i < 100; ++i) learn(*base, optimizer, first);
  const std::vector<double> wide = curve_of(base, LoraBase::bf16, second);
  EXPECT_LT(wide.back(), 0.95 * wide.front());
  for (const LoraBase format : {LoraBase::nf4}) {
    const std::vector<double> narrow = curve_of(base, format, second);
    for (size_t i = 0; i < wide.size(); ++i)
      EXPECT_NEAR(narrow[i], wide[i], 0.01 * wide[i]) << enum_name(format) << ", part " << i;
  }
}

}  // namespace
}  // namespace ulp::lora
