// What `ulp generate` does: a text that goes on from a prompt, byte by byte, from an engine whose runs continue each other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ulp/base/export.h"

namespace ulp {
class FieldVisitor;

namespace app {

/// How the next byte is chosen.
struct ULP_API Sampling {
  /// Logits are divided by it before the softmax (Ackley et al. 1985); 0: always the likeliest byte.
  double temperature = 0.8;
  int64_t top_k = 0;  ///< only the k likeliest bytes (Fan et al. 2018); 0: all
  int64_t seed = 0;

  void visit_fields(FieldVisitor& visitor);
};

struct GenerateOptions {
  std::string engine = {};
  std::string prompt = {};  ///< at least one byte
  int64_t count = 200;      ///< bytes to write
  Sampling sampling = {};
  int threads = 0;  ///< 0: one per core
};

struct GenerateOutcome {
  std::string text = {};         ///< what was written behind the prompt
  bool full = false;             ///< ended since the engine's longest text was reached
  double prompt_seconds = 0;     ///< for the prompt
  double seconds_per_token = 0;  ///< mean over the bytes written after the first
};

/// Writes a text, `written` being called with each byte as it comes. Throws FileError for a file that is no engine over
/// bytes whose runs continue each other, and ulp::Error for an empty prompt and for one that is longer than the engine's
/// longest text.
ULP_API GenerateOutcome generate(const GenerateOptions& options, const std::function<void(char)>& written);

}  // namespace app
}  // namespace ulp
