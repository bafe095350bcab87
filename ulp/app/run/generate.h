// Generates a text from a prompt, token by token, with an engine that has a KV cache (`ulp generate`).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/runtime/decoding/sampler.h"

namespace ulp::app {

/// Without a tokenizer tokens are bytes.
struct GenerateOptions {
  std::string engine = {};
  std::string prompt = {};     ///< at least one token
  std::string tokenizer = {};  ///< a tokenizer.json; empty: the one that the engine file holds, if any
  int64_t count = 200;         ///< tokens to write
  /// The text ends before the first of these that it would have; none of them empty.
  std::vector<std::string> stop = {};
  runtime::SamplingOptions sampling = {};
  int threads = 0;  ///< 0: one per core
};

struct GenerateOutcome {
  std::string text = {};         ///< what was written behind the prompt
  bool full = false;             ///< ended since the engine's longest text was reached
  std::string stopped = {};      ///< by which of GenerateOptions::stop it ended; empty: by none
  double prompt_seconds = 0;     ///< for the prompt
  double seconds_per_token = 0;  ///< mean over the tokens written after the first
};

/// Writes a text, `written` being called with each piece of it as it comes; pieces of a tokenizer are whole
/// characters. Throws FileError for a file that is no engine over tokens whose runs continue each other, for
/// one over other tokens than the tokenizer's and where Tokenizer::load() does, and ulp::Error for an empty
/// prompt or stop text, options of sampling out of range, and a prompt that is longer than the engine's
/// longest text.
ULP_API GenerateOutcome generate(const GenerateOptions& options,
                                 const std::function<void(std::string_view)>& written);

}  // namespace ulp::app
