// Predicts the memory of training runs from a few small ones that it makes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/memory/predict/forecast.h"

namespace ulp::memory {

/// Makes a model, trains it for two steps of this size and more (the first step has no optimizer states yet),
/// and gives what a MemoryRecorder saw. It must be the same program at every size.
using Probe = std::function<Recording(RunSize size)>;

/// Which runs are made.
struct PredictorOptions {
  /// Batches of the runs, growing, two or more: between and beyond neighbours sizes follow a line. Twice the
  /// last, and four times, are tried where an op works in another way below.
  std::vector<int64_t> batches = {1, 2, 4, 8};
  /// Lengths of texts: three for any length (memory is quadratic in it), one where the length is fixed, {0}
  /// where there is none.
  std::vector<int64_t> lengths = {0};
  /// One more run, of another size: what it needs beyond its prediction is added to every one.
  bool check = true;
  std::function<void(RunSize size)> progress = {};  ///< told before each run; may be empty
};

/// Predictions of one program. Runs are made when they are needed first.
class ULP_API Predictor {
 public:
  /// Throws ulp::Error for fewer than two batches, or lengths other than one or three.
  Predictor(Probe probe, PredictorOptions options);

  /// Throws ulp::Error for sizes < 1, another length where it is fixed, and what the runs throw.
  Prediction at(RunSize size);
  int64_t peak_bytes(RunSize size);
  /// The largest batch, at most `limit`, that fits; 0 where not even one sample does.
  int64_t largest_batch(int64_t budget, int64_t length = 0, int64_t limit = int64_t{1} << 20);
  /// The largest length, at most `limit`, that fits with this batch; 0 where none does.
  int64_t largest_length(int64_t budget, int64_t batch, int64_t limit);

  /// The share by which predictions are above the lines through the runs: what the check found missing.
  double slack();
  /// How many runs have been made.
  int64_t runs() const { return static_cast<int64_t>(recordings_.size()); }

 private:
  const Recording& recording(RunSize size);
  const Forecast& forecast(size_t pair);
  const Forecast& forecast_for(RunSize size);
  Recording extended(RunSize size);
  void check_size(RunSize size) const;

  Probe probe_;
  PredictorOptions options_;
  std::map<std::pair<int64_t, int64_t>, Recording> recordings_;
  std::map<size_t, Forecast> forecasts_;
  std::optional<double> slack_;
  size_t most_batches_ = 0;  ///< to which `batches` may grow
};

}  // namespace ulp::memory
