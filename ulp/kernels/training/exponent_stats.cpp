#include "ulp/kernels/training/exponent_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/training/exponent_counts.h"

namespace ulp::kernels {
namespace {

using Binade = ExponentStats::Binade;
constexpr int64_t kPiece = 1 << 17;  // elements a task counts: worth a thread's while, and below 2^32

constexpr Variant<const ExponentCounters*> kTables[] = {{Isa::avx512, ULP_ON_X86(&kExponentCountersAvx512)},
                                                        {Isa::avx2, ULP_ON_X86(&kExponentCountersAvx2)},
                                                        {Isa::portable, &kExponentCountersPortable}};

const ExponentCounters& counters(Isa isa) {
  return *first_admitted(kTables, isa);
}

Binade& binade(ExponentStats& stats, int exponent) {
  const int last = ExponentStats::kBinades - 1;
  return stats.binades[static_cast<size_t>(std::clamp(exponent - ExponentStats::kLowest, 0, last))];
}

void add(Binade& binade, bool upper, int64_t count = 1) {
  (upper ? binade.upper : binade.lower) += count;
}

/// Counts what one index holds together: the magnitudes up to 2^-126, each an integer times 2^-149.
template <typename Load>
void count_smallest(const typename Load::Code* x, int64_t n, uint32_t cut, ExponentStats& stats) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t units = Load::magnitude(x[i]);
    if (units == 0 || units > 0x800000U) continue;
    // Position of the binade's lower end, 2^position < units <= 2^(position + 1); 2^-1 for a single unit.
    const int position = units == 1 ? -1 : std::bit_width(units - 1) - 1;
    const bool upper = (uint64_t{units} << (23 - position)) >= 0x800000U + cut;
    add(binade(stats, position - 149), upper);
  }
}

template <typename Load>
void count_piece(const typename Load::Code* x, int64_t n, uint32_t cut,
                 void (*count)(const typename Load::Code*, int64_t, uint32_t, ExponentCounts&),
                 ExponentStats& stats) {
  ExponentCounts counts;
  count(x, n, cut, counts);
  const int64_t nans = int64_t{counts.bins[ExponentCounts::kNan]} + counts.bins[ExponentCounts::kNan + 1];
  stats.zeros = counts.bins[ExponentCounts::kZero];
  stats.nans = nans;
  stats.infinities = counts.nonfinite - nans;
  stats.first_nonfinite = counts.first;
  stats.amax = bits_to_float(counts.largest);
  for (int b = 2; b < 256; ++b) {
    Binade& to = binade(stats, b - 128);
    to = {counts.bins[2 * b], counts.bins[2 * b + 1]};
  }
  binade(stats, 127).upper -= stats.infinities;
  if (counts.bins[2] + counts.bins[3] > 0) count_smallest<Load>(x, n, cut, stats);
}

void count_f64(const double* x, int64_t n, uint64_t cut, ExponentStats& stats) {
  for (int64_t i = 0; i < n; ++i) {
    const double magnitude = std::fabs(x[i]);
    if (magnitude == 0) {
      ++stats.zeros;
    } else if (!std::isfinite(magnitude)) {
      ++(std::isnan(magnitude) ? stats.nans : stats.infinities);
      if (stats.first_nonfinite < 0) stats.first_nonfinite = i;
    } else {
      stats.amax = std::max(stats.amax, magnitude);
      int exponent = 0;  // magnitude = fraction * 2^exponent, fraction in [1/2, 1)
      const double fraction = std::frexp(magnitude, &exponent);
      const bool power = fraction == 0.5;  // the upper end of the binade below
      const auto mantissa = static_cast<uint64_t>(std::ldexp(fraction - 0.5, 53));
      add(binade(stats, power ? exponent - 2 : exponent - 1), power || mantissa >= cut);
    }
  }
}

void count_any(DataType type, const void* x, int64_t begin, int64_t n, uint64_t cut, Isa isa,
               ExponentStats& stats) {
  const auto cut23 = static_cast<uint32_t>((cut + (uint64_t{1} << 29) - 1) >> 29);
  const ExponentCounters& count = counters(isa);
  if (type == DataType::f32) {
    count_piece<LoadF32>(static_cast<const uint32_t*>(x) + begin, n, cut23, count.f32, stats);
  } else if (type == DataType::bf16) {
    count_piece<LoadBf16>(static_cast<const uint16_t*>(x) + begin, n, cut23, count.bf16, stats);
  } else if (type == DataType::f16) {
    count_piece<LoadF16>(static_cast<const uint16_t*>(x) + begin, n, cut23, count.f16, stats);
  } else {
    count_f64(static_cast<const double*>(x) + begin, n, cut, stats);
  }
}

void check_type(DataType type) {
  for (const DataType known : {DataType::f32, DataType::bf16, DataType::f16, DataType::f64}) {
    if (type == known) return;
  }
  fail("kernels.exponent_stats", "expected elements of f32, bf16, f16 or f64, got ", to_string(type));
}

/// As merge(), for the next piece of the same buffer or, with a smaller index, an earlier one.
void join(ExponentStats& all, ExponentStats& piece, int64_t begin) {
  if (piece.first_nonfinite >= 0) piece.first_nonfinite += begin;
  const int64_t first = all.first_nonfinite < 0     ? piece.first_nonfinite
                        : piece.first_nonfinite < 0 ? all.first_nonfinite
                                                    : std::min(all.first_nonfinite, piece.first_nonfinite);
  all.merge(piece);
  all.first_nonfinite = first;
}

}  // namespace

int64_t ExponentStats::nonzero() const {
  int64_t sum = 0;
  for (const Binade& b : binades) sum += b.lower + b.upper;
  return sum;
}

void ExponentStats::merge(const ExponentStats& other) {
  for (size_t i = 0; i < binades.size(); ++i) {
    binades[i].lower += other.binades[i].lower;
    binades[i].upper += other.binades[i].upper;
  }
  zeros += other.zeros;
  infinities += other.infinities;
  nans += other.nans;
  if (first_nonfinite < 0) first_nonfinite = other.first_nonfinite;
  amax = std::max(amax, other.amax);
}

ExponentStats ExponentStats::scaled(int exponent) const {
  ExponentStats out = *this;
  out.binades = {};
  out.amax = std::ldexp(amax, exponent);
  for (int i = 0; i < kBinades; ++i) {
    Binade& to = binade(out, kLowest + i + exponent);
    to.lower += binades[static_cast<size_t>(i)].lower;
    to.upper += binades[static_cast<size_t>(i)].upper;
  }
  return out;
}

ExponentStats exponent_stats(DataType type, const void* x, int64_t n, uint64_t cut, Isa isa,
                             const Parallel& parallel) {
  check_type(type);
  if (cut < 1 || cut > uint64_t{1} << 52) {
    fail("kernels.exponent_stats", "expected a cut in [1, 2^52], got ", cut);
  }
  ExponentStats all;
  const int64_t tasks = (n + kPiece - 1) / kPiece;
  if (tasks <= 1 || parallel.workers() == 1) {
    for (int64_t begin = 0; begin < n; begin += kPiece) {
      ExponentStats piece;
      count_any(type, x, begin, std::min(kPiece, n - begin), cut, isa, piece);
      join(all, piece, begin);
    }
    return all;
  }
  std::vector<ExponentStats> found(static_cast<size_t>(parallel.workers()));
  parallel.run(tasks, [&](int64_t task, int worker) {
    ExponentStats piece;
    const int64_t begin = task * kPiece;
    count_any(type, x, begin, std::min(kPiece, n - begin), cut, isa, piece);
    join(found[static_cast<size_t>(worker)], piece, begin);
  });
  for (ExponentStats& worker : found) join(all, worker, 0);
  return all;
}

}  // namespace ulp::kernels
