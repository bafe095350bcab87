// What can be done with one call: found by doing it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "samples.h"

namespace ulp::test {

/// How it went.
enum class Ending : uint8_t { works, fails, does_not_apply };

struct Verdict {
  Ending outcome = Ending::does_not_apply;
  std::string why;  ///< of a failure
};

/// The columns of the page.
struct Trial {
  Verdict captured;       ///< the graph gives the model's bits, at two batch sizes
  Verdict trains;         ///< and its gradients; does not apply to what has none
  Verdict quantized;      ///< static int8 between two layers, near the float graph
  bool integers = false;  ///< quantized: no op between the layers stays in float
  Verdict f32, bf16;      ///< in the engine, within rounding
  Verdict int8;           ///< the quantized network in the engine
};

/// Tries a call in every way. Never throws for what the library refuses.
Trial try_call(const Sample& sample);

/// True if LibTorch runs the sample's op when it runs the call.
bool reaches_its_op(const Sample& sample);

/// The ops that LibTorch tags as core, with their overloads, sorted.
std::vector<std::string> core_ops();

}  // namespace ulp::test
