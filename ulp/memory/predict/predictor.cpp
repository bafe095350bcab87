#include "ulp/memory/predict/predictor.h"

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"

namespace ulp::memory {

namespace {

constexpr const char* kPredictorWhere = "memory.Predictor";

/// The largest size in [0, limit] that fits, where all below one that fits do. Looked for from `start` on,
/// since sizes far from it may need runs of their own.
template <typename Fits>
int64_t largest(int64_t start, int64_t limit, const Fits& fits) {
  int64_t good = 0, bad = std::min(start, limit);
  while (bad <= limit && fits(bad)) {
    good = bad;
    bad = good == limit ? limit + 1 : std::min(2 * good, limit);
  }
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace

Predictor::Predictor(Probe probe, PredictorOptions options)
    : probe_(std::move(probe)), options_(std::move(options)) {
  const auto grows = [](const std::vector<int64_t>& sizes) {
    return std::ranges::adjacent_find(sizes, std::greater_equal<>()) == sizes.end();
  };
  if (options_.batches.size() < 2 || options_.batches[0] < 1 || !grows(options_.batches))
    fail(kPredictorWhere, "expected two or more batches, growing from 1 or more");
  constexpr size_t kDoublings = 2;
  most_batches_ = options_.batches.size() + kDoublings;
  if ((options_.lengths.size() != 1 && options_.lengths.size() != 3) || !grows(options_.lengths))
    fail(kPredictorWhere, "expected one length or three that grow, got ", options_.lengths.size());
}

const Recording& Predictor::recording(RunSize size) {
  const auto key = std::pair(size.batch, size.length);
  const auto found = recordings_.find(key);
  if (found != recordings_.end()) return found->second;
  if (options_.progress) options_.progress(size);
  return recordings_.emplace(key, probe_(size)).first->second;
}

const Forecast& Predictor::forecast(size_t pair) {
  const auto found = forecasts_.find(pair);
  if (found != forecasts_.end()) return found->second;
  const RunGrid grid{.batches = {options_.batches[pair], options_.batches[pair + 1]},
                     .lengths = options_.lengths};
  std::vector<Recording> recordings;
  for (const RunSize size : grid.points()) recordings.push_back(recording(size));
  return forecasts_.emplace(pair, Forecast(grid, std::move(recordings))).first->second;
}

const Forecast& Predictor::forecast_for(RunSize size) {
  size_t pair = 0;
  while (pair + 2 < options_.batches.size() && size.batch >= options_.batches[pair + 1]) ++pair;
  for (;; ++pair) {
    // Where small batches run another program, or none, larger ones tell of it.
    const bool last = pair + 2 == options_.batches.size();
    try {
      return forecast(pair);
    } catch (const OtherProgram&) {
      if (last && options_.batches.size() >= most_batches_) throw;
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception&) {
      if (last) throw;
    }
    if (last) options_.batches.push_back(2 * options_.batches.back());
  }
}

void Predictor::check_size(RunSize size) const {
  if (size.batch < 1) fail(kPredictorWhere, "expected a batch >= 1, got ", size.batch);
  if (options_.lengths.size() == 1 && size.length != options_.lengths[0])
    fail(kPredictorWhere, "expected length ", options_.lengths[0], ", the only one of the runs, got ",
         size.length);
  if (options_.lengths.size() > 1 && size.length < 1)
    fail(kPredictorWhere, "expected a length >= 1, got ", size.length);
}

double Predictor::slack() {
  if (slack_) return *slack_;
  slack_ = 0;
  if (!options_.check) return 0;
  const std::vector<int64_t>& lengths = options_.lengths;
  const RunSize other{.batch = options_.batches.back() + options_.batches.back() / 2 + 1,
                      .length = lengths.size() == 1 ? lengths[0] : (lengths[1] + lengths[2]) / 2 + 1};
  const auto predicted = static_cast<double>(forecast_for(other).peak_bytes(other));
  const auto real = static_cast<double>(recording(other).peak_bytes());
  slack_ = std::max(0.0, real / predicted - 1);
  return *slack_;
}

int64_t Predictor::peak_bytes(RunSize size) {
  check_size(size);
  const auto bytes = static_cast<double>(forecast_for(size).peak_bytes(size));
  return static_cast<int64_t>(std::ceil(bytes * (1 + slack())));
}

Prediction Predictor::at(RunSize size) {
  check_size(size);
  Prediction prediction = forecast_for(size).at(size);
  const auto bytes = static_cast<double>(prediction.peak_bytes);
  const auto more = static_cast<int64_t>(std::ceil(bytes * (1 + slack()))) - prediction.peak_bytes;
  prediction.peak_bytes += more;
  prediction.at_peak.bytes[static_cast<size_t>(Category::workspace)] += more;
  return prediction;
}

int64_t Predictor::largest_batch(int64_t budget, int64_t length, int64_t limit) {
  return largest(options_.batches[options_.batches.size() - 2], limit, [&](int64_t batch) {
    return peak_bytes({batch, length}) <= budget;
  });
}

int64_t Predictor::largest_length(int64_t budget, int64_t batch, int64_t limit) {
  return largest(options_.lengths.back(), limit, [&](int64_t length) {
    return peak_bytes({batch, length}) <= budget;
  });
}

}  // namespace ulp::memory
