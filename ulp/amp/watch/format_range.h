// Predicts what casting to a number format does to values whose exponents were counted: the shares lost at
// any scale, and the scale that loses least.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/formats/format.h"
#include "ulp/kernels/training/exponent_stats.h"

namespace ulp::amp {

/// Shares of the finite, non-zero values, each in [0, 1].
struct Shares {
  double underflow = 0;  ///< round to zero
  double subnormal = 0;  ///< keep fewer bits: not zero, but not above the smallest normal number
  double overflow = 0;   ///< round past the largest finite number (to infinity, or saturated)
};

/// A floating-point format's range under rounding to nearest even.
class ULP_API FormatRange {
 public:
  /// Throws ulp::Error for integers and bare scales, which have no exponent range to fall out of.
  explicit FormatRange(const formats::Format& format);

  const formats::Format& format() const { return *format_; }
  /// For kernels::exponent_stats(): counts made with it answer the questions below exactly.
  uint64_t threshold() const { return cut_; }
  /// Values up to 2^zero_exponent round to zero.
  int zero_exponent() const { return zero_exponent_; }
  /// 2^normal_exponent is the smallest normal number.
  int normal_exponent() const { return normal_exponent_; }
  /// The largest number and the first that overflow are in (2^top_exponent, 2^(top_exponent + 1)].
  int top_exponent() const { return top_exponent_; }

  /// Computes what becomes of the counted values times 2^exponent.
  Shares shares(const kernels::ExponentStats& stats, int exponent = 0) const;

  /// Binades between amax * 2^exponent and the largest finite number: log2(max / amax) - exponent. Infinite
  /// when nothing finite and non-zero was counted.
  double headroom(const kernels::ExponentStats& stats, int exponent = 0) const;

  /// The exponent k of the advised scale 2^k: the largest that leaves `margin` binades of headroom above the
  /// largest counted magnitude, but no larger than what it takes (from 2^0 on) to let nothing underflow to
  /// zero. So bf16, whose range is fp32's, is advised 2^0, and values that overflow unscaled get k < 0. 0
  /// when nothing was counted. Within [-126, 126].
  int advise(const kernels::ExponentStats& stats, double margin) const;

 private:
  const formats::Format* format_;
  int zero_exponent_, normal_exponent_, top_exponent_;
  uint64_t cut_;
};

/// The exponent of the power of two nearest to `scale` (> 0): exact for the scales that grow and shrink by
/// powers of two.
ULP_API int scale_exponent(double scale);

}  // namespace ulp::amp
