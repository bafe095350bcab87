// From recordings of small runs to runs of any size.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/export.h"
#include "ulp/memory/predict/prediction.h"

namespace ulp::memory {

/// The sizes of the recordings: every batch with every length.
struct RunGrid {
  std::vector<int64_t> batches = {};  ///< two
  std::vector<int64_t> lengths = {};  ///< three; one where the length stays as it is; {0} where there is none
  /// Every combination, the first batch with each length first.
  ULP_API std::vector<RunSize> points() const;
};

/// Recordings that are not of one program: other ops, or ops that leave other storages behind.
class ULP_API OtherProgram : public Error {
 public:
  using Error::Error;
};

/// Each storage's size as an expression: linear in the batch, quadratic in the length, through the recorded
/// sizes. What lives when is the same at every size. An op that divides its workspace otherwise at some of
/// the sizes counts with the most that it held at once.
class ULP_API Forecast {
 public:
  /// Throws OtherProgram naming the first difference.
  Forecast(RunGrid grid, std::vector<Recording> recordings);

  /// The run of that size.
  Recording recording(RunSize size) const;
  Prediction at(RunSize size) const { return summarize(recording(size), size); }
  int64_t peak_bytes(RunSize size) const { return recording(size).peak_bytes(); }

  const RunGrid& grid() const { return grid_; }

 private:
  RunGrid grid_;
  std::vector<Recording> recordings_;
};

}  // namespace ulp::memory
