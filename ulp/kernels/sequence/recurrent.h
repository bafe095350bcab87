// One direction of one layer of an LSTM or GRU over whole sequences, packed once, run many times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/sequence/recurrent_cell.h"

namespace ulp::kernels {

/// All that stays the same from run to run.
struct RecurrentConfig {
  Cell cell = Cell::lstm;
  int64_t input = 1, hidden = 1;  ///< features
  bool reverse = false;           ///< from the last step of time to the first
  bool per_tensor = false;        ///< int8 weights: one quantizer for all rows of a product, else one a row
};

/// A matrix [gates * hidden][columns], as f32, as bf16 or as int8 codes with a scale for each row, and what is
/// added to its products. Not owned.
struct GateWeights {
  const float* f32 = nullptr;
  const uint16_t* bf16 = nullptr;
  const int8_t* codes = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;  ///< may be null
};

/// States of a run's sequences, each [batch][hidden], apart from what the run writes elsewhere.
struct RecurrentStates {
  const float* first_h = nullptr;  ///< before the first step; null: zeros
  const float* first_c = nullptr;  ///< the same; lstm only
  /// c behind the last step, for each sequence in one more row of y; lstm only.
  bool last_c = false;
};

/// y[:, t] = h of the cell (recurrent_cell.h) at each step of time.
/// x goes through its weights for all steps at once, h step by step. With int8 weights, x and h are quantized
/// as they run and the same bits come out on every instruction set (dynamic_linear.h); with f32 and
/// bf16 weights products are summed in f32 in the order of the instruction set, and with bf16 weights x and h are
/// rounded to bf16 where they are multiplied.
class ULP_API Recurrent {
 public:
  virtual ~Recurrent() = default;
  /// Bytes of scratch for run(), 64-byte aligned by the caller; never less for more batch, steps or workers.
  virtual size_t workspace_bytes(int64_t batch, int64_t steps, int workers) const = 0;
  /// x: [batch][steps][input], y: [batch][steps][hidden], or [batch][steps + 1][hidden] with last_c, apart from each
  /// other. No allocation.
  virtual void run(int64_t batch, int64_t steps, const float* x, const RecurrentStates& states, float* y,
                   void* workspace, const Parallel& parallel) const = 0;
  virtual std::string name() const = 0;  ///< e.g. "lstm_dynamic_u8_avx512_vnni"
};

/// PrepackedWeights the weights for `isa`. Throws ulp::Error for sizes below 1, for more gates or (int8)
/// features than the products take, and unless both matrices are given in one form.
ULP_API std::unique_ptr<Recurrent> make_recurrent(const RecurrentConfig& config, const GateWeights& input,
                                                  const GateWeights& hidden, Isa isa);

}  // namespace ulp::kernels
