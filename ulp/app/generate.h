// Generates a text from a prompt, token by token, with an engine that has a KV cache (`ulp generate`).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "ulp/base/export.h"

namespace ulp {
class FieldVisitor;

namespace app {

/// How the next token is chosen. Without a tokenizer tokens are bytes.
struct ULP_API Sampling {
  /// Logits are divided by it before the softmax (Ackley et al. 1985); 0: always the likeliest token.
  double temperature = 0.8;
  int64_t top_k = 0;  ///< only the k likeliest tokens (Fan et al. 2018); 0: all
  int64_t seed = 0;

  void visit_fields(FieldVisitor& visitor);
};

struct GenerateOptions {
  std::string engine = {};
  std::string prompt = {};     ///< at least one token
  std::string tokenizer = {};  ///< a tokenizer.json; empty: the one that the engine file holds, if any
  int64_t count = 200;         ///< tokens to write
  Sampling sampling = {};
  int threads = 0;  ///< 0: one per core
};

struct GenerateOutcome {
  std::string text = {};         ///< what was written behind the prompt
  bool full = false;             ///< ended since the engine's longest text was reached
  double prompt_seconds = 0;     ///< for the prompt
  double seconds_per_token = 0;  ///< mean over the tokens written after the first
};

/// Writes a text, `written` being called with each piece of it as it comes; pieces of a tokenizer are whole characters. Throws
/// FileError for a file that is no engine over tokens whose runs continue each other, for one over other tokens than the tokenizer's and
/// where Tokenizer::load() does, and ulp::Error for an empty prompt and for one that is longer than the engine's longest text.
ULP_API GenerateOutcome generate(const GenerateOptions& options,
                                 const std::function<void(std::string_view)>& written);

}  // namespace app
}  // namespace ulp
