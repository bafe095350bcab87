#include "ulp/quant/observers/calibration_histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "ulp/libtorch/torch_parallel.h"

namespace ulp::quant {
namespace {

constexpr int64_t kHistogramGrain = int64_t{1} << 16;
constexpr float kLargestFloat = std::numeric_limits<float>::max();

// The smallest e with x < 2^e.
int32_t exponent_above(float x) {
  int exponent = CalibrationHistogram::kSmallestExponent;
  if (x > 0) std::frexp(x, &exponent);
  return exponent;
}

// A power of two times a float is exact in double, so is the floor.
void count(const float* values, int64_t n, double bins_per_unit, int64_t* counts) {
  for (int64_t i = 0; i < n; ++i) {
    if (!(std::abs(values[i]) <= kLargestFloat)) continue;
    const double position = static_cast<double>(values[i]) * bins_per_unit;
    auto bin = static_cast<int64_t>(position);
    bin -= position < static_cast<double>(bin);
    ++counts[bin + CalibrationHistogram::kBinsPerSide];
  }
}

}  // namespace

double CalibrationHistogram::width() const {
  return std::ldexp(1.0, *exponent) / kBinsPerSide;
}

void CalibrationHistogram::add(const float* values, int64_t n, float largest) {
  raise(exponent_above(largest));
  const double bins_per_unit = 1 / width();
  if (n <= kHistogramGrain) return count(values, n, bins_per_unit, counts.data());
  std::mutex mutex;
  libtorch::parallel_for(0, n, kHistogramGrain, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> part(kBins);
    count(values + begin, end - begin, bins_per_unit, part.data());
    const std::lock_guard lock(mutex);
    for (int64_t i = 0; i < kBins; ++i) counts[static_cast<size_t>(i)] += part[static_cast<size_t>(i)];
  });
}

void CalibrationHistogram::merge(std::span<const int64_t> other, int32_t other_exponent) {
  std::vector<int64_t> copy(other.begin(), other.end());
  CalibrationHistogram theirs{copy, &other_exponent};
  const int32_t common = std::max(*exponent, other_exponent);
  raise(common);
  theirs.raise(common);
  for (size_t i = 0; i < copy.size(); ++i) counts[i] += copy[i];
}

void CalibrationHistogram::raise(int32_t to) {
  const int32_t steps = to - *exponent;
  if (steps <= 0) return;
  *exponent = to;
  // Towards zero from both ends of the occupied bins, a bin only ever moves onto itself or a visited one.
  const auto move = [&](int64_t bin) {
    const int64_t n = std::exchange(counts[static_cast<size_t>(bin + kBinsPerSide)], 0);
    counts[static_cast<size_t>((bin >> std::min(steps, 62)) + kBinsPerSide)] += n;
  };
  for (int64_t bin = 0; bin < kBinsPerSide; ++bin) move(bin);
  for (int64_t bin = -1; bin >= -kBinsPerSide; --bin) move(bin);
}

}  // namespace ulp::quant
