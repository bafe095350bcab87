// Decoders of the Llama family in engines: all forms of weights, and texts that are written token by token.
#include <gtest/gtest.h>

#include "continued.h"
#include "error_of.h"
#include "support.h"
#include "ulp/models/decoder.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::test {
namespace {

constexpr int64_t kDecoderTexts = 24;

models::DecoderConfig decoder_of(const std::string& family) {
  models::DecoderConfig config{.name = family,
                               .vocab_size = kTokens,
                               .max_length = kDecoderTexts,
                               .width = 32,
                               .layers = 2,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_size = 8,
                               .intermediate = 64};
  if (family == "qwen3") {
    config.qk_norms = config.qkv_bias = true;
    config.kv_heads = 1;
  }
  if (family == "gemma") {
    config.unit_offset_norms = config.post_norms = config.tied_embeddings = true;
    config.activation = models::GateActivation::gelu_tanh;
    config.embedding_scale = 4;
    config.attention_scale = 0.2;
    config.logit_softcap = 5;
  }
  if (family == "phi3") {
    config.fused_projections = true;
    config.window = kDecoderTexts;  // hides nothing
    config.layer_types.assign(2, models::LayerAttention::sliding);
  }
  return config;
}

/// Away from the start, where logits are nearly equal.
std::shared_ptr<graph::GraphModule> captured_decoder(const models::DecoderConfig& config) {
  torch::manual_seed(7);
  const auto model = models::make_decoder(config);
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.add_(torch::randn_like(parameter), 0.1);
  return captured_text(*model, kDecoderTexts);
}

/// The likeliest token behind each text, written by the engine one at a time and by the graph from the whole
/// text.
void expect_same_choices(graph::GraphModule& graph, const runtime::Plan& plan) {
  const torch::NoGradGuard no_grad;
  const runtime::Engine engine(plan, {.threads = 2});
  runtime::Context context(engine);
  at::Tensor text = tokens(2, 5), fresh = text;
  while (text.size(1) < kDecoderTexts) {
    const at::Tensor said = write(context, fresh).select(1, fresh.size(1) - 1);
    const at::Tensor want = graph.forward({text}).select(1, text.size(1) - 1).argmax(-1, true);
    fresh = said.argmax(-1, true);
    ASSERT_TRUE(torch::equal(fresh, want)) << text.size(1);
    text = torch::cat({text, fresh}, 1);
  }
}

class DecoderEngines : public ::testing::TestWithParam<const char*> {};

TEST_P(DecoderEngines, WriteTextsInEveryForm) {
  const auto graph = captured_decoder(decoder_of(GetParam()));
  expect_continues(*graph, {.precision = kF32Precision, .continued = "time"}, 90, kDecoderTexts);
  expect_continues(*graph, {.precision = kBF16Precision, .continued = "time"}, 20, kDecoderTexts);
  expect_continues(*quant::quantize_dynamic(graph), {.continued = "time"}, 25, kDecoderTexts);
  expect_continues(*quant::quantize_weights(graph), {.continued = "time"}, 90, kDecoderTexts);
  expect_continues(*quant::quantize_weights(graph, {.bits = 4}), {.continued = "time"}, 90, kDecoderTexts);
}

TEST_P(DecoderEngines, ChooseTheTokensOfTheWholeText) {
  const auto graph = captured_decoder(decoder_of(GetParam()));
  expect_same_choices(*graph, ulp::lower(*graph, {.continued = "time"}));
  const auto codes = quant::quantize_weights(graph, {.bits = 4});
  expect_same_choices(*codes, ulp::lower(*codes, {.continued = "time"}));
}

INSTANTIATE_TEST_SUITE_P(Families, DecoderEngines, ::testing::Values("llama", "qwen3", "gemma", "phi3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ulp::test
