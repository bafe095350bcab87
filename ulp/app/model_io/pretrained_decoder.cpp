#include "ulp/app/model_io/pretrained_decoder.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace ulp::app {

namespace {

using models::DecoderConfig;
using models::GateActivation;
using models::LayerAttention;
using models::RotaryConfig;
using models::RotaryScaling;

/// Texts that a decoder takes: an engine's tables and the keys that it keeps grow with them.
constexpr int64_t kDecoderLength = 2048;
constexpr int64_t kMostPositions = int64_t{1} << 24;

/// What the configurations of a family leave unsaid.
struct Family {
  const char* name;
  int64_t positions;      ///< "max_position_embeddings"
  bool gemma = false;     ///< norms that add 1, scaled embeddings, tied tables
  int64_t head_size = 0;  ///< "head_dim"; 0: the width / the heads
  double norm_eps = 1e-6;
  bool one_kv_head_each = false;  ///< without num_key_value_heads each head has keys of its own
};

constexpr std::array kFamilies = {
    Family{.name = "llama", .positions = 2048, .one_kv_head_each = true},
    Family{.name = "mistral", .positions = 131072},
    Family{.name = "qwen2", .positions = 32768},
    Family{.name = "qwen3", .positions = 32768, .head_size = 128},
    Family{.name = "gemma", .positions = 8192, .gemma = true, .head_size = 256},
    Family{.name = "gemma2", .positions = 8192, .gemma = true, .head_size = 256},
    Family{.name = "gemma3_text", .positions = 131072, .gemma = true, .head_size = 256},
    Family{.name = "phi3", .positions = 4096, .norm_eps = 1e-5, .one_kv_head_each = true},
    Family{.name = "stablelm", .positions = 4096, .norm_eps = 1e-5}};

const Family* family_of(const std::string& model_type) {
  const auto found = std::ranges::find(kFamilies, model_type, &Family::name);
  return found == kFamilies.end() ? nullptr : &*found;
}

/// "max_position_embeddings"
int64_t positions_of(const PretrainedSettings& settings, const Family& family) {
  int64_t positions = family.positions;
  settings.size("max_position_embeddings", positions, kMostPositions);
  return positions;
}

void read_sizes(const PretrainedSettings& settings, const Family& family, DecoderConfig& config) {
  settings.require(
      {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"});
  settings.size("vocab_size", config.vocab_size, PretrainedSettings::kMostTokens);
  config.max_length = std::min(positions_of(settings, family), kDecoderLength);
  settings.size("hidden_size", config.width);
  settings.size("num_hidden_layers", config.layers, PretrainedSettings::kMostLayers);
  settings.size("num_attention_heads", config.heads);
  settings.size("intermediate_size", config.intermediate, int64_t{1} << 20);
  config.kv_heads = config.heads;
  if (!family.one_kv_head_each && !settings.is_null("num_key_value_heads"))
    settings.require({"num_key_value_heads"});
  settings.size("num_key_value_heads", config.kv_heads);
  config.head_size = family.head_size > 0 ? family.head_size : config.width / config.heads;
  if (family.head_size == 0 && !settings.has("head_dim") && config.width % config.heads != 0)
    settings.refuse("expected num_attention_heads that divide hidden_size ", config.width, ", got ",
                    config.heads);
  settings.size("head_dim", config.head_size);
}

GateActivation activation_of(const PretrainedSettings& settings, const Family& family) {
  const bool newer = family.gemma && family.name != std::string("gemma");
  const char* const key = newer ? "hidden_activation" : "hidden_act";
  if (family.gemma) {  // "gelu" of Gemma's first files means the approximation, too
    if (newer)
      settings.expect(key, {"gelu_pytorch_tanh", "gelu_new"});
    else
      settings.expect(key, {"gelu_pytorch_tanh", "gelu_new", "gelu"});
    return GateActivation::gelu_tanh;
  }
  settings.expect(key, {"silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh"});
  const std::string name = settings.has(key) ? settings[key].get<std::string>() : "silu";
  if (name == "silu" || name == "swish") return GateActivation::silu;
  return name == "gelu" ? GateActivation::gelu : GateActivation::gelu_tanh;
}

RotaryScaling scaling_named(const std::string& type) {
  if (type == "linear") return RotaryScaling::linear;
  if (type == "llama3") return RotaryScaling::llama3;
  return type == "yarn" ? RotaryScaling::yarn : RotaryScaling::longrope;
}

/// Phi-3's files of before transformers 4.41 call longrope "su" or "yarn".
std::string rope_type_of(const PretrainedSettings& own, const Family& family) {
  const char* const key = own.has("rope_type") ? "rope_type" : "type";
  const bool phi = family.name == std::string("phi3");
  if (phi)
    own.expect(key, {"default", "longrope", "su", "yarn"});
  else
    own.expect(key, {"default", "linear", "llama3", "dynamic", "yarn", "longrope"});
  const std::string type = own.has(key) ? own[key].get<std::string>() : "default";
  return phi && type != "default" ? "longrope" : type;
}

/// The length of the first training's texts. Phi-3 has one of its own beside that of the embeddings.
int64_t original_length_of(const PretrainedSettings& around, const PretrainedSettings& own,
                           const Family& family, int64_t positions) {
  constexpr int64_t kPhi3Length = 4096;
  int64_t length = positions;
  own.size("original_max_position_embeddings", length, kMostPositions, 2);
  if (family.name == std::string("phi3")) length = kPhi3Length;
  around.size("original_max_position_embeddings", length, kMostPositions, 2);
  return length;
}

void read_yarn(const PretrainedSettings& own, RotaryConfig& config) {
  own.number("beta_fast", config.beta_fast);
  own.number("beta_slow", config.beta_slow);
  own.flag("truncate", config.truncate);
  own.number("attention_factor", config.attention_factor);
  if (config.attention_factor > 0 || !own.has("mscale") || !own.has("mscale_all_dim")) return;
  const auto scaled = [&](const char* key) {
    double scale = 1;
    own.number(key, scale);
    return config.factor <= 1 ? 1.0 : 0.1 * scale * std::log(config.factor) + 1;
  };
  config.attention_factor = scaled("mscale") / scaled("mscale_all_dim");
}

bool is_above_zero(const PretrainedSettings::Json& number) {
  return number.is_number() && number.get<double>() > 0 && std::isfinite(number.get<double>());
}

/// A text is never longer than original_length, so that the divisors for longer ones are checked and not
/// kept.
void read_longrope(const PretrainedSettings& own, RotaryConfig& config) {
  own.number("attention_factor", config.attention_factor);
  own.require({"short_factor", "long_factor"});
  for (const char* const key : {"short_factor", "long_factor"}) {
    const auto& listed = own[key];
    const bool numbers = listed.is_array() && std::all_of(listed.begin(), listed.end(), is_above_zero);
    if (!numbers || listed.size() > static_cast<size_t>(PretrainedSettings::kLargestSize))
      own.refuse("expected numbers above 0 as ", key);
  }
  config.divisors = own["short_factor"].get<std::vector<double>>();
}

/// `own` are the settings of the embeddings, `around` those that count where these leave some unsaid.
RotaryConfig rotary_of(const PretrainedSettings& around, const PretrainedSettings& own, const Family& family,
                       double theta, int64_t positions) {
  RotaryConfig config{.theta = theta};
  own.number("rope_theta", config.theta);
  const std::string type = rope_type_of(own, family);
  if (type == "default" || type == "dynamic") return config;  // dynamic begins beyond the positions
  config.scaling = scaling_named(type);
  const bool by_lengths = type == "longrope" || (type == "yarn" && own.is_null("factor"));
  if (!by_lengths) own.require({"factor"});
  config.original_length = original_length_of(around, own, family, positions);
  if (by_lengths)
    config.factor = static_cast<double>(positions) / static_cast<double>(config.original_length);
  own.number("factor", config.factor);
  if (type == "yarn") read_yarn(own, config);
  if (type == "longrope") read_longrope(own, config);
  if (type != "llama3") return config;
  own.require({"low_freq_factor", "high_freq_factor"});
  own.number("low_freq_factor", config.low_frequency_factor);
  own.number("high_freq_factor", config.high_frequency_factor);
  return config;
}

/// "partial_rotary_factor", which transformers reads for these families alone and ignores or refuses
/// elsewhere.
void read_rotary_size(const PretrainedSettings& settings, const PretrainedSettings& own, const Family& family,
                      DecoderConfig& config) {
  const bool stablelm = family.name == std::string("stablelm");
  if (!stablelm && family.name != std::string("phi3")) {
    settings.expect("partial_rotary_factor", {1.0});
    own.expect("partial_rotary_factor", {1.0});
    return;
  }
  double factor = stablelm ? 0.25 : 1;
  settings.number("partial_rotary_factor", factor);
  own.number("partial_rotary_factor", factor);
  const auto size = static_cast<int64_t>(static_cast<double>(config.head_size) * std::min(factor, 2.0));
  if (factor > 1 || size < 2 || size % 2 != 0)
    settings.refuse("expected a partial_rotary_factor that gives an even part of the ", config.head_size,
                    " numbers of a head, got ", factor);
  config.rotary_size = size;
}

/// Gemma 3: rope_parameters of each kind of layer, or rope_scaling of those with full attention.
void read_rotary_of_kinds(const PretrainedSettings& settings, const Family& family, int64_t positions,
                          DecoderConfig& config) {
  const PretrainedSettings none = settings.part("no such setting");
  const PretrainedSettings scaling = settings.part("rope_scaling"), own = settings.part("rope_parameters");
  if (!scaling.empty() && !own.empty())
    settings.refuse("expected rope_parameters or rope_scaling for model_type \"", config.name,
                    "\", got both");
  for (const char* const key :
       {"full_attention", "sliding_attention", "type"})  // transformers 5 ignores them
    if (scaling.has(key) && !scaling.has("rope_type"))
      settings.refuse("expected a rope_type in rope_scaling for model_type \"", config.name, "\", got ", key);
  double theta = 1e6;
  settings.number("rope_theta", theta);
  const PretrainedSettings full = scaling.empty() ? own.part("full_attention") : scaling;
  config.rotary = rotary_of(none, full, family, theta, positions);
  theta = 10000;
  settings.number("rope_local_base_freq", theta);
  const PretrainedSettings sliding = own.part("sliding_attention");
  config.sliding_rotary = rotary_of(none, sliding, family, theta, positions);
  for (const PretrainedSettings& part : {full, sliding}) {
    part.expect("partial_rotary_factor", {1.0});
    part.expect("truncate", {true});  // transformers reads it beside the kinds of layers
  }
}

void read_rotary(const PretrainedSettings& settings, const Family& family, DecoderConfig& config) {
  const int64_t positions = positions_of(settings, family);
  if (family.name == std::string("gemma3_text")) {
    settings.expect("partial_rotary_factor", {1.0});
    return read_rotary_of_kinds(settings, family, positions, config);
  }
  const PretrainedSettings scaling = settings.part("rope_scaling");
  const PretrainedSettings own = scaling.empty() ? settings.part("rope_parameters") : scaling;
  if (own.has("full_attention") || own.has("sliding_attention"))
    settings.refuse("expected one kind of rotary embeddings for model_type \"", family.name, '"');
  double theta = 10000;
  settings.number("rope_theta", theta);
  read_rotary_size(settings, own, family, config);
  config.rotary = config.sliding_rotary = rotary_of(settings, own, family, theta, positions);
}

/// The kinds of attention as the file lists them.
std::vector<LayerAttention> listed_layers(const PretrainedSettings& settings, const DecoderConfig& config) {
  const auto& listed = settings["layer_types"];
  if (!listed.is_array() || static_cast<int64_t>(listed.size()) != config.layers)
    settings.refuse("expected layer_types of ", config.layers, " layers");
  std::vector<LayerAttention> layers;
  for (const auto& one : listed) {
    if (one != "full_attention" && one != "sliding_attention")
      settings.refuse("expected layer_types of \"full_attention\" and \"sliding_attention\", got ",
                      one.is_string() ? one.get<std::string>().substr(0, 60) : "no text");
    layers.push_back(one == "full_attention" ? LayerAttention::full : LayerAttention::sliding);
  }
  return layers;
}

void read_windows(const PretrainedSettings& settings, const Family& family, DecoderConfig& config) {
  const std::string name = family.name;
  if (name == "llama" || name == "gemma" || name == "stablelm") return;
  const bool qwen = name.starts_with("qwen");
  bool used = true;
  if (qwen) {
    used = false;
    settings.flag("use_sliding_window", used);
  }
  if (used && name != "phi3" && !settings.is_null("sliding_window")) config.window = 4096;
  if (used) settings.size("sliding_window", config.window, kMostPositions);
  const auto each = [&](auto slides) {
    for (int64_t i = 0; i < config.layers; ++i)
      config.layer_types.push_back(config.window > 0 && slides(i) ? LayerAttention::sliding
                                                                  : LayerAttention::full);
  };
  const bool listed = settings.has("layer_types");  // Ministral is a "mistral" that lists them
  if (name == "phi3" || (name == "mistral" && !listed)) return each([](int64_t) { return true; });
  if (listed) {
    config.layer_types = listed_layers(settings, config);
    const bool slides = std::ranges::count(config.layer_types, LayerAttention::sliding) > 0;
    if (slides && config.window == 0) settings.refuse("expected a sliding_window for the layer_types");
    return;
  }
  int64_t pattern = name == "gemma2" ? 2 : 6, first = 28;
  if (name == "gemma3_text") settings.size("sliding_window_pattern", pattern);
  settings.size("max_window_layers", first, PretrainedSettings::kMostLayers, 0);
  each([&](int64_t i) { return qwen ? i >= first : (i + 1) % pattern != 0; });
}

void read_gemma(const PretrainedSettings& settings, const Family& family, DecoderConfig& config) {
  config.unit_offset_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  settings.expect("use_bidirectional_attention", {false});
  if (family.name == std::string("gemma")) return;
  config.post_norms = true;
  double scalar = 256;
  settings.number("query_pre_attn_scalar", scalar);
  config.attention_scale = 1 / std::sqrt(scalar);
  const bool second = family.name == std::string("gemma2");
  const auto softcap = [&](const char* key, double& value, double missing) {
    if (!settings.is_null(key)) value = missing;
    settings.number(key, value);
  };
  softcap("final_logit_softcapping", config.logit_softcap, second ? 30 : 0);
  if (second) return softcap("attn_logit_softcapping", config.attention_softcap, 50);
  config.qk_norms = true;
  if (settings.has("attn_logit_softcapping"))
    settings.refuse("expected no attn_logit_softcapping for model_type \"gemma3_text\"");
}

void read_biases(const PretrainedSettings& settings, const std::string& name, DecoderConfig& config) {
  if (name == "qwen2") config.qkv_bias = true;
  if (name == "stablelm") settings.flag("use_qkv_bias", config.qkv_bias);
  if (name == "mistral" || name == "qwen2" || name == "phi3" || name == "stablelm") return;
  settings.flag("attention_bias", config.qkv_bias);
  config.output_bias = config.qkv_bias;
  if (name == "llama") settings.flag("mlp_bias", config.mlp_bias);
}

/// Longrope turns longer texts by other frequencies.
int64_t lengths_of(const DecoderConfig& config) {
  int64_t longest = kMostPositions;
  for (const RotaryConfig& rotary : {config.rotary, config.sliding_rotary}) {
    if (rotary.scaling == RotaryScaling::longrope) longest = std::min(longest, rotary.original_length);
  }
  return longest;
}

}  // namespace

bool is_decoder_family(const std::string& model_type) {
  return family_of(model_type) != nullptr;
}

DecoderConfig decoder_config(const PretrainedSettings& settings, const std::string& model_type) {
  const Family& family = *family_of(model_type);
  DecoderConfig config{.name = model_type};
  config.norm_eps = family.norm_eps;
  config.tied_embeddings = family.gemma;
  if (settings.has("quantization_config"))
    settings.refuse("expected weights that are no codes, got a quantization_config");
  read_sizes(settings, family, config);
  config.activation = activation_of(settings, family);
  config.layer_norms = model_type == "stablelm";
  settings.number(config.layer_norms ? "layer_norm_eps" : "rms_norm_eps", config.norm_eps);
  settings.rate("attention_dropout", config.attention_dropout);
  settings.flag("tie_word_embeddings", config.tied_embeddings);
  read_biases(settings, model_type, config);
  read_windows(settings, family, config);
  read_rotary(settings, family, config);
  if (family.gemma) read_gemma(settings, family, config);
  config.qk_norms = config.qk_norms || model_type == "qwen3";
  config.fused_projections = model_type == "phi3";
  if (model_type == "phi3")
    for (const char* const key : {"resid_pdrop", "embd_pdrop"}) settings.expect(key, {0.0});
  if (model_type == "stablelm") {
    for (const char* const key : {"use_parallel_residual", "qk_layernorm"}) settings.expect(key, {false});
    settings.expect("hidden_dropout", {0.0});
    settings.expect("head_dim", {config.width / config.heads});
  }
  config.max_length = std::min(config.max_length, lengths_of(config));
  return config;
}

int64_t decoder_positions(const PretrainedSettings& settings, const std::string& model_type) {
  return std::min(positions_of(settings, *family_of(model_type)),
                  lengths_of(decoder_config(settings, model_type)));
}

}  // namespace ulp::app
