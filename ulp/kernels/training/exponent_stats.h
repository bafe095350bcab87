// One pass over a float buffer that says where its magnitudes lie: a histogram of exponents, the largest
// magnitude, zeros, infinities, NaN and the place of the first value that is not finite.
//
// Each binade (2^e, 2^(e+1)] is counted in two parts, cut where the overflow threshold of one number format
// falls inside a binade (its largest number plus half a step, divided by a power of two). Values that round
// to zero are those up to half the smallest subnormal, a power of two. So the counts say exactly how many
// elements underflow to zero and how many overflow in that format, after multiplication by any power of two.
#pragma once

#include <array>
#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/formats/data_type.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// The result of one pass; merge() joins the passes over several buffers.
struct ULP_API ExponentStats {
  static constexpr int kLowest = -150;  ///< exponent of the first binade: (2^-150, 2^-149] and all below
  static constexpr int kBinades = 278;  ///< the last is (2^127, 2^128] and all finite numbers above
  /// Numbers of one exponent, on both sides of a cut.
  struct Binade {
    int64_t lower = 0;  ///< below the cut
    int64_t upper = 0;
    bool operator==(const Binade&) const = default;
  };

  std::array<Binade, kBinades> binades{};  ///< of finite, non-zero magnitudes; binades[e - kLowest]
  int64_t zeros = 0, infinities = 0, nans = 0;
  int64_t first_nonfinite = -1;  ///< its index in the buffer; after merge() in the first that has one
  double amax = 0;               ///< the largest finite magnitude

  int64_t nonfinite() const { return infinities + nans; }
  int64_t nonzero() const;  ///< finite and not zero: what the binades hold
  int64_t total() const { return zeros + nonfinite() + nonzero(); }
  void merge(const ExponentStats& other);
  /// The counts of the values times 2^exponent: the binades move; what leaves the table stays in its end
  /// binades.
  ExponentStats scaled(int exponent) const;
  bool operator==(const ExponentStats&) const = default;
};

/// Counts the `n` elements of `x`, of type f32, bf16, f16 or f64; an error for another type. `cut` is where
/// binades are cut: the smallest 52-bit mantissa of the upper part, in [1, 2^52] (formats differ;
/// amp/watch/format_range.h computes it). The result is the same on every instruction set and for any number of
/// workers. f64 is counted by plain loops.
ULP_API ExponentStats exponent_stats(DataType type, const void* x, int64_t n, uint64_t cut, Isa isa,
                                     const Parallel& parallel);

}  // namespace ulp::kernels
