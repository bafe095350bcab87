// Which samples make the next batch: epoch by epoch, shuffled, the same on every machine for the same seed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::io {

/// How samples are ordered and grouped.
struct SampleOrderOptions {
  int64_t samples = 0;
  int64_t batch_size = 128;
  bool shuffle = true;
  bool drop_last = false;  ///< leave out the last batch of an epoch when it is not full
  uint64_t seed = 0;
  /// Each batch is cut into `parts` parts, as equal as can be, for as many processes; this one gets number
  /// `part`.
  int64_t part = 0, parts = 1;
};

/// Walks through the numbers of a data set's samples. The order is a function of (seed, epoch) alone, so the
/// state is three numbers and a restored order continues exactly.
class ULP_API SampleOrder {
 public:
  /// Throws Error for fewer than one sample, a batch size below 1 or below the number of parts, and a part
  /// that is none.
  explicit SampleOrder(const SampleOrderOptions& options);

  /// The samples of the next batch, or of this part of it, valid until the next call; none at the end of an
  /// epoch, after which the next call starts the next epoch.
  std::span<const int64_t> next();

  int64_t batches() const;  ///< in one epoch
  int64_t epoch() const { return epoch_; }
  int64_t position() const { return position_; }  ///< samples already given in this epoch
  uint64_t seed() const { return options_.seed; }

  /// Drops what is left of the present epoch and goes to the start of this one.
  void start_epoch(int64_t epoch);

  /// Where the order stands, as JSON.
  std::string state() const;
  /// Takes that up again, its seed included. Throws FileError unless it was made with the same number of
  /// samples and batch size.
  void restore(const std::string& state);

 private:
  void shuffle();

  SampleOrderOptions options_;
  int64_t epoch_ = 0;
  int64_t position_ = 0;
  std::vector<int64_t> order_;
};

}  // namespace ulp::io
