// Decoders of the Llama family in engines: all forms of weights, and texts that are written token by token.
#include <gtest/gtest.h>

#include "continued.h"
#include "error_of.h"
#include "support.h"
#include "ulp/models/decoder.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/quant/weights/weights.h"
#include "ulp/runtime/ops/attention_op.h"

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
  if (family == "mistral") {
    config.window = 7;
    config.layer_types.assign(2, models::LayerAttention::sliding);
  }
  if (family == "gemma2" || family == "gemma3") {
    config.unit_offset_norms = config.post_norms = true;
    config.window = 5;
    config.layer_types = {models::LayerAttention::sliding, models::LayerAttention::full};
  }
  if (family == "gemma2") {
    config.attention_softcap = 3;
    config.logit_softcap = 5;
  }
  if (family == "gemma3") {
    config.qk_norms = true;
    config.sliding_rotary.theta = 50;
  }
  if (family == "nearly") {  // the longest texts alone have a token that it hides
    config.window = kDecoderTexts - 1;
    config.attention_softcap = 2;
    config.layer_types = {models::LayerAttention::full, models::LayerAttention::sliding};
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

std::vector<runtime::AttentionAttributes> attention_of(const runtime::Plan& plan) {
  std::vector<runtime::AttentionAttributes> found;
  for (const runtime::Step& step : plan.steps) {
    if (step.op == runtime::Op::attention) found.push_back(step.get<runtime::AttentionAttributes>());
  }
  return found;
}

TEST(DecoderWindows, AreAPartOfTheStepWithTheirSoftCap) {
  for (const char* const family : {"gemma2", "gemma3", "nearly"}) {
    const models::DecoderConfig config = decoder_of(family);
    const auto graph = captured_decoder(config);
    for (const LowerOptions& options : {LowerOptions{}, LowerOptions{.continued = "time"}}) {
      const auto steps = attention_of(ulp::lower(*graph, options));
      ASSERT_EQ(steps.size(), 2U) << family;
      for (size_t i = 0; i < 2; ++i) {
        const bool slides = config.layer_types[i] == models::LayerAttention::sliding;
        EXPECT_EQ(steps[i].window, slides ? config.window : 0) << family << " " << i;
        EXPECT_EQ(steps[i].softcap, static_cast<float>(config.attention_softcap)) << family << " " << i;
        EXPECT_EQ(steps[i].kept, options.continued.empty() ? 0 : kDecoderTexts);
      }
    }
  }
}

/// Keys and values are kept once for each head of keys: 2 layers, keys and values, f32 or bf16.
TEST(DecoderCaches, HaveTheBytesOfTheirOwnHeads) {
  const torch::NoGradGuard no_grad;
  for (const int64_t kv_heads : {1, 2, 4}) {
    models::DecoderConfig config = decoder_of("llama");
    config.kv_heads = kv_heads;
    const auto graph = captured_decoder(config);
    for (const auto& [precision, bytes] : {std::pair{kF32Precision, 4}, std::pair{kBF16Precision, 2}}) {
      const runtime::Plan plan = ulp::lower(*graph, {.precision = precision, .continued = "time"});
      for (const runtime::AttentionAttributes& step : attention_of(plan))
        EXPECT_EQ(step.kv_heads, kv_heads == config.heads ? 0 : kv_heads);
      const runtime::Engine engine(plan);
      runtime::Context context(engine);
      EXPECT_EQ(context.kept_bytes(), 0U);
      write(context, tokens(3, 2));
      const int64_t numbers = 3 * config.layers * 2 * kDecoderTexts * kv_heads * config.head_size;
      EXPECT_EQ(context.kept_bytes(), static_cast<size_t>(numbers * bytes)) << kv_heads;
    }
  }
}

/// Heads that are shared give the bits of heads that were copied: the first engine sees the copies by a name
/// of their own.
TEST(DecoderCaches, GiveTheBitsOfCopiedHeads) {
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  const auto run = [](bool copies) {
    const auto net = std::make_shared<Net>();
    net->body = [=](const at::Tensor& x) {
      const auto heads = [&](const at::Tensor& y, int64_t count) {
        return y.view({y.size(0), y.size(1), count, 4}).transpose(1, 2);
      };
      const auto shared = [&](const at::Tensor& y) {
        const at::Tensor all = heads(y, 2).repeat_interleave(3, 1);
        return copies ? all * 1.0 : all;
      };
      const at::Tensor made =
          at::scaled_dot_product_attention(heads(x.narrow(2, 0, 24), 6), shared(x.narrow(2, 24, 8)),
                                           shared(x.narrow(2, 32, 8)), {}, 0.0, true);
      return made.transpose(1, 2).flatten(2);
    };
    net->eval();
    const auto graph = ulp::capture(net, Tensors{torch::ones({2, 11, 40})});
    graph->eval();
    const runtime::Plan plan = ulp::lower(*graph);
    const auto steps = attention_of(plan);
    EXPECT_EQ(steps.size(), 1U);
    for (const runtime::AttentionAttributes& step : steps) EXPECT_EQ(step.kv_heads, copies ? 0 : 2);
    runtime::Engine engine(plan);
    torch::manual_seed(6);
    const at::Tensor x = torch::randn({3, 11, 40}), y = torch::empty({3, 11, 24});
    const std::array<const void*, 1> in = {x.const_data_ptr()};
    const std::array<void*, 1> out = {y.mutable_data_ptr()};
    engine.run(3, in, out);
    expect_near(graph->forward({x}), y, 110);
    return y;
  };
  EXPECT_TRUE(torch::equal(run(false), run(true)));
}

INSTANTIATE_TEST_SUITE_P(Families, DecoderEngines,
                         ::testing::Values("llama", "qwen3", "gemma", "phi3", "mistral", "gemma2", "gemma3",
                                           "nearly"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ulp::test
