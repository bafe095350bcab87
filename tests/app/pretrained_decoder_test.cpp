// config.json of decoders where transformers reads settings in ways of its own: what it falls back to, and
// which of two it takes.
#include "ulp/app/model_io/pretrained_decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "error_of.h"
#include "temporary_folder.h"
#include "ulp/app/model_io/pretrained_config.h"

namespace ulp::app {
namespace {

using models::DecoderConfig;
using models::LayerAttention;
using models::RotaryConfig;
using models::RotaryScaling;
using nlohmann::json;

const json kLinear = {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 90.0}};
const json kLlama3 = {
    {"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};

/// A small decoder of that kind with these settings besides.
DecoderConfig read_decoder(const std::string& model_type, const json& settings) {
  json config = {{"model_type", model_type},      {"vocab_size", 96},         {"hidden_size", 32},
                 {"intermediate_size", 48},       {"num_hidden_layers", 3},   {"num_attention_heads", 4},
                 {"max_position_embeddings", 64}, {"num_key_value_heads", 2}, {"head_dim", 8}};
  config.update(settings);
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "config.json";
  std::ofstream(path) << config;
  return std::get<DecoderConfig>(read_published_config(path).network);
}

std::string said_of(const std::string& model_type, const json& settings) {
  return ulp::test::error_of([&] { read_decoder(model_type, settings); });
}

TEST(PublishedDecoder, AttentionThatIsNotCausalIsRefused) {
  for (const std::string name :
       {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3"}) {
    EXPECT_NO_THROW(read_decoder(name, {{"is_causal", true}})) << name;
    EXPECT_SAYS(said_of(name, {{"is_causal", false}}), "expected is_causal true, got false");
    EXPECT_SAYS(said_of(name, {{"is_causal", nullptr}}), "expected is_causal true, got null");
    EXPECT_SAYS(said_of(name, {{"per_layer_config", {{"1", {{"head_dim", 16}}}}}}), "got per_layer_config");
  }
}

TEST(PublishedDecoder, ScalingThatIsEmptyLeavesTheParameters) {
  const json both = {{"rope_scaling", json::object()}, {"rope_parameters", kLinear}};
  const DecoderConfig config = read_decoder("llama", both);
  EXPECT_EQ(config.rotary.scaling, RotaryScaling::linear);
  EXPECT_EQ(config.rotary.factor, 4);
  EXPECT_EQ(config.rotary.theta, 90);
  const DecoderConfig scaled =
      read_decoder("llama", {{"rope_scaling", kLlama3}, {"rope_parameters", kLinear}});
  EXPECT_EQ(scaled.rotary.scaling, RotaryScaling::llama3);
  EXPECT_EQ(scaled.rotary.theta, 10000);
}

TEST(PublishedDecoder, Gemma3HasRotaryEmbeddingsOfEachKindOfLayer) {
  const json kinds = {{"full_attention", kLinear}, {"sliding_attention", {{"rope_theta", 70.0}}}};
  const auto expect_kinds = [](const DecoderConfig& config) {
    EXPECT_EQ(config.rotary.scaling, RotaryScaling::linear);
    EXPECT_EQ(config.rotary.theta, 90);
    EXPECT_EQ(config.sliding_rotary.scaling, RotaryScaling::none);
    EXPECT_EQ(config.sliding_rotary.theta, 70);
  };
  expect_kinds(read_decoder("gemma3_text", {{"rope_parameters", kinds}}));
  expect_kinds(read_decoder("gemma3_text", {{"rope_parameters", kinds}, {"rope_scaling", json::object()}}));
  expect_kinds(read_decoder("gemma3_text", {{"rope_scaling", kLinear}, {"rope_local_base_freq", 70.0}}));
  EXPECT_SAYS(said_of("gemma3_text", {{"rope_parameters", kinds}, {"rope_scaling", kLinear}}), "got both");
  EXPECT_SAYS(said_of("gemma3_text", {{"rope_scaling", kinds}}), "expected a rope_type in rope_scaling");
  EXPECT_SAYS(said_of("gemma3_text", {{"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}}),
              "expected a rope_type in rope_scaling");
  EXPECT_SAYS(said_of("gemma2", {{"rope_parameters", kinds}}), "expected one kind of rotary embeddings");
}

TEST(PublishedDecoder, TheFirstLengthIsThatOfTheFileOnlyWithoutKinds) {
  const auto length = [](const std::string& name, const char* key, json scaling) {
    return read_decoder(name, {{key, std::move(scaling)}, {"original_max_position_embeddings", 32}})
        .rotary.original_length;
  };
  EXPECT_EQ(length("llama", "rope_scaling", kLlama3), 32);
  EXPECT_EQ(length("gemma3_text", "rope_scaling", kLlama3), 64);
  EXPECT_EQ(length("gemma3_text", "rope_parameters", {{"full_attention", kLlama3}}), 64);
}

/// The settings that transformers' yarn reads, and its values for those that are missing.
TEST(PublishedDecoder, YarnHasTheFactorsOfTheFile) {
  json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  RotaryConfig rotary = read_decoder("qwen2", {{"rope_scaling", yarn}}).rotary;
  EXPECT_EQ(rotary.scaling, RotaryScaling::yarn);
  EXPECT_EQ(rotary.factor, 4);
  EXPECT_EQ(rotary.original_length, 16);
  EXPECT_EQ(rotary.attention_factor, 0);
  EXPECT_EQ(rotary.beta_fast, 32);
  yarn.update(
      {{"beta_fast", 8}, {"beta_slow", 2}, {"truncate", false}, {"mscale", 0.5}, {"mscale_all_dim", 2.0}});
  rotary =
      read_decoder("llama", {{"rope_parameters", yarn}, {"original_max_position_embeddings", 32}}).rotary;
  EXPECT_EQ(rotary.original_length, 32);  // that beside the parameters counts
  EXPECT_EQ(rotary.beta_fast, 8);
  EXPECT_EQ(rotary.beta_slow, 2);
  EXPECT_FALSE(rotary.truncate);
  EXPECT_DOUBLE_EQ(rotary.attention_factor, (0.05 * std::log(4.0) + 1) / (0.2 * std::log(4.0) + 1));
  yarn["factor"] = nullptr;
  EXPECT_EQ(read_decoder("llama", {{"rope_scaling", yarn}}).rotary.factor, 4);  // 64 positions of 16
}

TEST(PublishedDecoder, LongropeEndsWhereOtherFactorsBegin) {
  json scaling = {{"type", "longrope"}, {"short_factor", {1, 2.5, 3}}, {"long_factor", {4, 5, 6}}};
  const json phi = {
      {"rope_scaling", scaling}, {"partial_rotary_factor", 0.75}, {"original_max_position_embeddings", 16}};
  const DecoderConfig config = read_decoder("phi3", phi);
  EXPECT_EQ(config.rotary.scaling, RotaryScaling::longrope);
  EXPECT_EQ(config.rotary.divisors, (std::vector<double>{1, 2.5, 3}));
  EXPECT_EQ(config.rotary.factor, 4);
  EXPECT_EQ(config.rotary_size, 6);
  EXPECT_EQ(config.max_length, 16);
  scaling["type"] = "su";
  EXPECT_EQ(read_decoder("phi3", {{"rope_scaling", scaling}, {"partial_rotary_factor", 0.75}})
                .rotary.original_length,
            4096);
  EXPECT_SAYS(said_of("phi3", {{"rope_scaling", kLinear}}), "\"longrope\"");
  EXPECT_SAYS(said_of("phi3", {{"partial_rotary_factor", 0.4}}), "an even part of the 8 numbers of a head");
  EXPECT_SAYS(said_of("phi3", {{"partial_rotary_factor", 1.5}}), "an even part");
}

TEST(PublishedDecoder, StableLmHasLayerNormsAndTurnsAQuarterOfAHead) {
  const DecoderConfig config = read_decoder("stablelm", {{"use_qkv_bias", true}, {"layer_norm_eps", 1e-3}});
  EXPECT_TRUE(config.layer_norms && config.qkv_bias && !config.output_bias);
  EXPECT_EQ(config.norm_eps, 1e-3);
  EXPECT_EQ(config.rotary_size, 2);
  EXPECT_EQ(read_decoder("stablelm", {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}).rotary_size, 4);
  EXPECT_SAYS(said_of("stablelm", {{"use_parallel_residual", true}}), "expected use_parallel_residual false");
  EXPECT_SAYS(said_of("stablelm", {{"qk_layernorm", true}}), "expected qk_layernorm false");
}

TEST(PublishedDecoder, AMistralThatListsItsLayersHasThem) {
  const json listed = {"sliding_attention", "full_attention", "full_attention"};
  const DecoderConfig config = read_decoder("mistral", {{"sliding_window", 5}, {"layer_types", listed}});
  EXPECT_EQ(config.window, 5);
  EXPECT_EQ(config.layer_types,
            (std::vector{LayerAttention::sliding, LayerAttention::full, LayerAttention::full}));
  const std::vector all(3, LayerAttention::sliding);
  EXPECT_EQ(read_decoder("mistral", {{"sliding_window", 5}}).layer_types, all);
  EXPECT_EQ(read_decoder("mistral", {{"sliding_window", 5}, {"layer_types", nullptr}}).layer_types, all);
  EXPECT_EQ(read_decoder("phi3", {{"sliding_window", 5}, {"layer_types", listed}}).layer_types, all);
  EXPECT_SAYS(said_of("mistral", {{"sliding_window", nullptr}, {"layer_types", listed}}),
              "expected a sliding_window for the layer_types");
}

}  // namespace
}  // namespace ulp::app
