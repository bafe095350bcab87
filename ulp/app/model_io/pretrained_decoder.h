// config.json of decoders of the Llama family. Internal to the room.
#pragma once

#include <string>
#include <vector>

#include "ulp/app/model_io/pretrained_settings.h"
#include "ulp/models/decoder.h"

namespace ulp::app {

/// Their model_type: llama, which SmolLM has, too, mistral, qwen2, qwen3, gemma, gemma2, gemma3_text, phi3,
/// stablelm.
bool is_decoder_family(const std::string& model_type);

/// The network. It takes texts of up to 2,048 tokens, or of decoder_positions() where that is less.
/// Throws FileError for sizes out of range, for those that are missing, and for settings that would compute
/// something else.
models::DecoderConfig decoder_config(const PretrainedSettings& settings, const std::string& model_type);

/// The longest text that its positions are for: max_position_embeddings, with longrope at most
/// original_max_position_embeddings.
int64_t decoder_positions(const PretrainedSettings& settings, const std::string& model_type);

}  // namespace ulp::app
