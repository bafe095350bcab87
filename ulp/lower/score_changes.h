// What is done to attention scores before their softmax, and which attention step that is.
#pragma once

#include <optional>
#include <vector>

#include "ulp/lower/score_masks.h"
#include "ulp/runtime/ops/attention_op.h"

namespace ulp::lowering {

/// One change of scores, in order.
struct ScoreChange {
  enum class Kind : uint8_t {
    scale,      ///< times `number`
    cap,        ///< tanh
    fill,       ///< `number` at some scores
    add,        ///< `number` more at some scores
    add_values  ///< a row of keys for each sample is added
  };
  Kind kind = Kind::scale;
  double number = 1;
  PickedScores where = {};
  graph::Value* values = nullptr;
  bool only_at = false;  ///< scale: at `where` alone
};

/// The masks of an attention step.
struct StepMasks {
  double scale = 1;
  bool causal = false;
  int64_t later = -1;  ///< queries and keys of a causal mask
  int64_t window = 0;  ///< of a causal mask: as Triangle has it
  double softcap = 0;  ///< above 0: scores become softcap * tanh(scale * score / softcap) before the mask
  std::vector<HiddenKeys> keys;  ///< which get `key_number`
  double key_number = 0;
  graph::Value* values = nullptr;  ///< a row of keys that is added
  runtime::BlindQueries blind = runtime::BlindQueries::zeros;
};

/// The step whose softmax gives the weights of these scores for every input; nothing where none does.
/// `hidden_rows`: what the softmax of nothing but -infinity gives.
std::optional<StepMasks> step_masks_of(const std::vector<ScoreChange>& changes,
                                       runtime::BlindQueries hidden_rows);

}  // namespace ulp::lowering
