#include "ulp/amp/watch/format_range.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

using kernels::ExponentStats;

/// Exponent of the largest power of two in a positive number.
int floor_log2(double value) {
  return std::ilogb(value);
}

/// The lower end of a counted binade.
int exponent_of(size_t index) {
  return ExponentStats::kLowest + static_cast<int>(index);
}

/// Exponent of the lowest counted binade that is not empty; kBinades' end when there is none.
int lowest_exponent(const ExponentStats& stats) {
  size_t i = 0;
  while (i < stats.binades.size() && stats.binades[i] == ExponentStats::Binade{}) ++i;
  return exponent_of(i);
}

}  // namespace

FormatRange::FormatRange(const formats::Format& format) : format_(&format) {
  if (format.kind != formats::Kind::floating || format.smallest_subnormal() <= 0) {
    fail("amp.FormatRange", "expected a floating-point format with subnormal numbers, got ", format.name);
  }
  // Half the smallest number is a tie, which goes to zero.
  zero_exponent_ = floor_log2(format.smallest_subnormal()) - 1;
  normal_exponent_ = floor_log2(format.smallest_normal());
  // Overflow starts at max plus half a step; at that very number the tie goes to the even mantissa.
  top_exponent_ = floor_log2(format.max());
  const double largest = std::ldexp(format.max(), -top_exponent_);
  const double threshold = largest + std::ldexp(1.0, -format.mantissa_bits - 1);
  const bool tie_overflows = (format.max_code() & 1U) != 0;
  cut_ = static_cast<uint64_t>(std::ldexp(threshold - 1.0, 52)) + (tie_overflows ? 0 : 1);
}

Shares FormatRange::shares(const ExponentStats& stats, int exponent) const {
  int64_t underflow = 0, subnormal = 0, overflow = 0, total = 0;
  for (size_t i = 0; i < stats.binades.size(); ++i) {
    const auto [lower, upper] = stats.binades[i];
    const int64_t both = lower + upper;
    const int low = exponent_of(i) + exponent, high = low + 1;  // (2^low, 2^high]
    total += both;
    if (high <= zero_exponent_) {
      underflow += both;
    } else if (high <= normal_exponent_) {
      subnormal += both;
    }
    if (low > top_exponent_) {
      overflow += both;
    } else if (low == top_exponent_) {
      overflow += upper;
    }
  }
  const auto share = [&](int64_t part) {
    return total == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(total);
  };
  return {share(underflow), share(subnormal), share(overflow)};
}

double FormatRange::headroom(const ExponentStats& stats, int exponent) const {
  if (stats.amax == 0) return std::numeric_limits<double>::infinity();
  return std::log2(format_->max()) - std::log2(stats.amax) - exponent;
}

int FormatRange::advise(const ExponentStats& stats, double margin) const {
  if (stats.amax == 0) return 0;
  const int largest = static_cast<int>(std::floor(headroom(stats) - margin));
  // The lowest binade (2^low, 2^(low + 1)] is safe once low has come up to zero_exponent_.
  const int enough = std::max(0, zero_exponent_ - lowest_exponent(stats));
  return std::clamp(std::min(largest, enough), -126, 126);
}

int scale_exponent(double scale) {
  if (!(scale > 0) || !std::isfinite(scale)) {
    fail("amp.scale_exponent", "expected a finite scale > 0, got ", scale);
  }
  return static_cast<int>(std::lround(std::log2(scale)));
}

}  // namespace ulp::amp
