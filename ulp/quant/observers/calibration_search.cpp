#include "ulp/quant/observers/calibration_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ulp::quant {
namespace {

constexpr int64_t kSide = CalibrationHistogram::kBinsPerSide;
constexpr double kWorstError = std::numeric_limits<double>::infinity();
constexpr double kLeastKept = 0.9;

double largest_magnitude(const BinnedValues& values) {
  return std::max(std::abs(values.min), std::abs(values.max));
}

Interval symmetric(double bound) {
  const auto c = static_cast<float>(bound);
  return {-c, c};
}

// counts[i] is of [first + i, first + i + 1) widths.
double quantile(const std::vector<int64_t>& counts, int64_t first, double width, double q, int64_t total) {
  const double rank = q * static_cast<double>(total);
  int64_t below = 0;
  double result = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const double inside = std::min((rank - static_cast<double>(below)) / static_cast<double>(counts[i]), 1.0);
    result = (static_cast<double>(first + static_cast<int64_t>(i)) + inside) * width;
    below += counts[i];
    if (static_cast<double>(below) >= rank) break;
  }
  return result;
}

double x_log_x(double x) {
  return x > 0 ? x * std::log(x) : 0;
}

// Sums over bins [-kSide, i), so that a candidate costs one step for each code and not for each bin.
struct PrefixSums {
  std::vector<int64_t> counts, occupied;
  std::vector<double> entropy;  // of count log count

  explicit PrefixSums(const BinnedValues& values)
      : counts(2 * kSide + 1), occupied(2 * kSide + 1), entropy(2 * kSide + 1) {
    for (const auto& bin : values.bins) counts[place(bin.index)] = bin.count;
    // The peak of zeros behind a relu is represented exactly by every candidate; it must not decide.
    int64_t& zero = counts[place(0)];
    zero = std::min(zero, std::max(counts[place(-1)], counts[place(1)]));
    for (size_t i = 1; i < counts.size(); ++i) {
      occupied[i] = counts[i] > 0;
      entropy[i] = x_log_x(static_cast<double>(counts[i]));
      counts[i] += counts[i - 1];
      occupied[i] += occupied[i - 1];
      entropy[i] += entropy[i - 1];
    }
  }
  static size_t place(int64_t bin) { return static_cast<size_t>(bin + kSide + 1); }
  template <typename T>
  static T between(const std::vector<T>& sums, int64_t begin, int64_t end) {
    return sums[static_cast<size_t>(end + kSide)] - sums[static_cast<size_t>(begin + kSide)];
  }
};

// Kullback-Leibler divergence of window [begin, end): P are its counts with what lies outside added to the
// outermost bins; Q spreads the window's own counts of each code evenly over that code's occupied bins.
double divergence(const PrefixSums& sums, int64_t begin, int64_t end, int64_t codes) {
  const int64_t width = end - begin;
  const int64_t below = PrefixSums::between(sums.counts, -kSide, begin),
                above = PrefixSums::between(sums.counts, end, kSide);
  const int64_t inside = PrefixSums::between(sums.counts, begin, end);
  const int64_t first = PrefixSums::between(sums.counts, begin, begin + 1),
                last = PrefixSums::between(sums.counts, end - 1, end);
  if ((below > 0 && first == 0) || (above > 0 && last == 0)) return kWorstError;
  double p_log_p = PrefixSums::between(sums.entropy, begin, end);
  p_log_p += x_log_x(static_cast<double>(first + below)) - x_log_x(static_cast<double>(first));
  p_log_p += x_log_x(static_cast<double>(last + above)) - x_log_x(static_cast<double>(last));
  double p_log_q = 0;
  for (int64_t code = 0; code < codes; ++code) {
    const int64_t from = begin + (code * width + codes - 1) / codes,
                  to = begin + ((code + 1) * width + codes - 1) / codes;
    const int64_t own = PrefixSums::between(sums.counts, from, to);
    if (own == 0) continue;
    const int64_t clipped = own + (code == 0 ? below : 0) + (code == codes - 1 ? above : 0);
    const auto bins = static_cast<double>(PrefixSums::between(sums.occupied, from, to));
    p_log_q += static_cast<double>(clipped) * std::log(static_cast<double>(own) / bins);
  }
  const auto all = static_cast<double>(inside + below + above);
  return (p_log_p - p_log_q) / all - std::log(all) + std::log(static_cast<double>(inside));
}

double round_even(double v) {
  constexpr double kMagic = 0x1.8p52;
  return (v + kMagic) - kMagic;
}

// The best interval tried so far, and its sum of squared errors.
class MseSearch {
 public:
  MseSearch(const BinnedValues& values, const Scheme& scheme, Interval full)
      : values_(values), scheme_(scheme), full_(full), best_(full), smallest_(error(full)) {}

  enum Sides { both, low, high };

  void coarse(Sides sides) {
    const Interval base = best_;
    for (int i = 0; i <= 96; ++i) {
      const double factor = std::exp2(-i / 8.0);
      consider({sides == high ? base.low : scaled(full_.low, factor),
                sides == low ? base.high : scaled(full_.high, factor)});
    }
  }
  void fine(Sides sides) {
    const Interval base = best_;
    for (int k = 8; k >= -8; --k) {
      const double factor = std::exp2(k / 64.0);
      consider({sides == high ? base.low : std::max(scaled(base.low, factor), full_.low),
                sides == low ? base.high : std::min(scaled(base.high, factor), full_.high)});
    }
  }
  Interval best() const { return best_; }

 private:
  static float scaled(float bound, double factor) { return static_cast<float>(bound * factor); }

  void consider(Interval candidate) {
    const double sum = error(candidate);
    if (!(sum < smallest_)) return;
    smallest_ = sum;
    best_ = candidate;
  }
  double error(Interval candidate) const {
    const ScaleZero chosen = choose_scale_zero(candidate.low, candidate.high, scheme_);
    const double s = chosen.scale, z = chosen.zero_point;
    const double lowest = static_cast<double>(scheme_.qmin()) - z,
                 highest = static_cast<double>(scheme_.qmax()) - z;
    double sum = 0;
    for (const auto& bin : values_.bins) {
      const double code = round_even(std::clamp(bin.value / s, lowest, highest));
      const double difference = bin.value - code * s;
      sum += static_cast<double>(bin.count) * difference * difference;
    }
    return sum;
  }

  const BinnedValues& values_;
  const Scheme& scheme_;
  Interval full_, best_;
  double smallest_;
};

}  // namespace

BinnedValues binned_values(const CalibrationHistogram& histogram, float min, float max) {
  BinnedValues values{.bins = {}, .width = histogram.width(), .min = min, .max = max, .total = 0};
  for (int64_t index = -kSide; index < kSide; ++index) {
    const int64_t count = histogram.counts[static_cast<size_t>(index + kSide)];
    if (count == 0) continue;
    const double middle = (static_cast<double>(index) + 0.5) * values.width;
    values.bins.push_back({index, count, std::clamp<double>(middle, min, max)});
    values.total += count;
  }
  return values;
}

Interval percentile_interval(const BinnedValues& values, double percentile, Mapping mapping) {
  if (mapping == Mapping::symmetric) {
    std::vector<int64_t> magnitudes(kSide);
    for (const auto& bin : values.bins) {
      magnitudes[static_cast<size_t>(bin.index >= 0 ? bin.index : -bin.index - 1)] += bin.count;
    }
    return symmetric(std::min(quantile(magnitudes, 0, values.width, percentile / 100, values.total),
                              largest_magnitude(values)));
  }
  std::vector<int64_t> counts(2 * kSide);
  for (const auto& bin : values.bins) counts[static_cast<size_t>(bin.index + kSide)] = bin.count;
  const auto bound_at = [&](double q) {
    return std::clamp(static_cast<float>(quantile(counts, -kSide, values.width, q, values.total)), values.min,
                      values.max);
  };
  return {bound_at((100 - percentile) / 200), bound_at((100 + percentile) / 200)};
}

Interval entropy_interval(const BinnedValues& values, const Scheme& scheme) {
  const int64_t codes = scheme.qmax() - scheme.qmin() + 1;
  const bool is_symmetric = scheme.mapping == Mapping::symmetric;
  // Zero is always represented, so the window reaches to it.
  const int64_t first = std::min<int64_t>(values.bins.front().index, 0),
                end = std::max<int64_t>(values.bins.back().index + 1, 0);
  const PrefixSums sums(values);
  const int64_t widest = std::max(-first, end), all = PrefixSums::between(sums.counts, -kSide, kSide);
  int64_t best = widest;
  double least = kWorstError;
  for (int64_t t = widest; t > 0; --t) {
    const int64_t from = is_symmetric ? -t : std::max(-t, first), to = is_symmetric ? t : std::min(t, end);
    const int64_t kept = PrefixSums::between(sums.counts, from, to);
    if (to - from < codes || kept == 0 || static_cast<double>(kept) < kLeastKept * static_cast<double>(all))
      break;
    const double found = divergence(sums, from, to, codes);
    if (!(found < least)) continue;
    least = found;
    best = t;
  }
  if (best == widest) {
    return is_symmetric ? symmetric(largest_magnitude(values)) : Interval{values.min, values.max};
  }
  const double bound = static_cast<double>(best) * values.width;
  if (is_symmetric) return symmetric(bound);
  const auto limit = static_cast<float>(bound);
  return {std::max(values.min, -limit), std::min(values.max, limit)};
}

Interval mse_interval(const BinnedValues& values, const Scheme& scheme) {
  Interval full{std::min(values.min, 0.0F), std::max(values.max, 0.0F)};
  if (scheme.mapping == Mapping::symmetric) full = symmetric(largest_magnitude(values));
  MseSearch search(values, scheme, full);
  const bool two_sided = scheme.mapping == Mapping::affine && full.low < 0 && full.high > 0;
  search.coarse(MseSearch::both);
  if (two_sided) {
    search.coarse(MseSearch::high);
    search.coarse(MseSearch::low);
  }
  search.fine(MseSearch::both);
  if (two_sided) {
    search.fine(MseSearch::high);
    search.fine(MseSearch::low);
  }
  return search.best();
}

}  // namespace ulp::quant
