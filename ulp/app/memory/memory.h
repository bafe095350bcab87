// Predicts how much memory training takes and what fits, and checks it (`ulp memory`).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulp/amp/fp8/fp8_recipe.h"
#include "ulp/app/train/memory_plan.h"
#include "ulp/app/train/workload.h"
#include "ulp/base/export.h"
#include "ulp/memory/predict/predictor.h"
#include "ulp/report/report.h"
#include "ulp/train/train_options.h"

namespace ulp::app {

/// Options of `ulp memory`.
struct MemoryQuestion {
  train::TrainOptions options = {};        ///< the batch among them
  MemoryPlan plan = {};                    ///< of activations and the optimizer's state
  std::optional<amp::Fp8Recipe> fp8 = {};  ///< in an fp8 precision; nothing: the precision's own
  int64_t length = 0;                      ///< of texts; 0: the longest, at most 128
  std::vector<int64_t> lengths = {};       ///< rows of the table of what fits; empty: `length` alone
  std::optional<int64_t> budget = {};      ///< bytes
  bool prove = false;                      ///< train two steps of the asked size and measure
  /// Called before each run with its size; may be empty.
  std::function<void(memory::RunSize size)> progress = {};
};

/// The largest batch of a length, and the largest length of a batch.
struct Fit {
  int64_t length = 0;
  int64_t batch = 0;       ///< 0: not even one sample fits
  int64_t peak_bytes = 0;  ///< of that batch, or of one sample
};

/// The result of `ulp memory`.
struct MemoryAnswer {
  std::string model = {};
  train::TrainOptions options = {};
  MemoryPlan plan = {};
  memory::Prediction prediction = {};
  std::optional<int64_t> budget = {};
  std::vector<Fit> fits = {};  ///< with a budget: a row a length
  int64_t longest = 0;         ///< with a budget, of texts: the largest length with the asked batch
  int64_t most_length = 0;     ///< the network's own limit
  std::optional<int64_t> measured_bytes = {};  ///< with `prove`
  int64_t runs = 0;                            ///< small runs that it took
  double slack = 0;                            ///< memory::Predictor::slack()
};

/// Throws ulp::Error for options that do not go together and for lengths that the network cannot take.
ULP_API void check_question(const Workload& model, const MemoryQuestion& question);

/// Throws as check_question(), ulp::Error for networks that do not train, and Interrupted on Ctrl-C, which is
/// seen between runs.
ULP_API MemoryAnswer ask_memory(const Workload& model, const MemoryQuestion& question);

/// Bytes of each category at the peak, its share, and the most that it is at any time.
ULP_API report::Table memory_table(const MemoryAnswer& answer);
/// The batches that fit in the budget, a row a length; without a budget it has no rows.
ULP_API report::Table fit_table(const MemoryAnswer& answer);
/// Predicted and measured peak.
ULP_API report::Table proof_table(const MemoryAnswer& answer);
/// "forward, aten::softmax at encoder.layer.3, asks for 1.5 MiB".
ULP_API std::string cause_of_peak(const memory::Prediction& prediction);
/// All tables, the timeline and the shares as charts.
ULP_API report::Report memory_report(const MemoryAnswer& answer);

}  // namespace ulp::app
