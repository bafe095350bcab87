// Counting exponents, written so that the compiler vectorizes all but the counting itself. Included once by a
// file per instruction set, which names its table with ULP_EXPONENT_COUNTERS; everything here has internal
// linkage.
#include <cstdint>

#include "ulp/kernels/training/exponent_counts.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kBlock = 256;  // elements whose indices are computed at a time, on the stack
constexpr int kTables = 4;       // neighbours are often alike and would wait for each other's increment

/// Indices of `n` elements; keeps the largest finite magnitude and counts what is not finite.
///
/// With u = magnitude - 1 + 2^23, u >> 23 numbers the binades (2^e, 2^(e+1)] and the sum carries into the
/// next number exactly when the mantissa reaches the cut.
template <typename Load>
inline void index_block(const typename Load::Code* x, int64_t n, uint32_t carry, uint32_t* index,
                        int32_t& largest, int32_t& nonfinite) {
  int32_t most = largest, bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = Load::magnitude(x[i]);
    const uint32_t u = magnitude + 0x7fffffU;
    index[i] = (u >> 23) + ((u + carry) >> 23);
    const int32_t special = magnitude >= 0x7f800000U ? 1 : 0;
    const int32_t finite = special != 0 ? 0 : static_cast<int32_t>(magnitude);
    most = finite > most ? finite : most;
    bad += special;
  }
  largest = most;
  nonfinite = bad;
}

template <typename Load>
void count(const typename Load::Code* x, int64_t n, uint32_t cut, ExponentCounts& counts) {
  uint32_t tables[kTables][ExponentCounts::kBins] = {};
  uint32_t index[kBlock];
  const uint32_t carry = 0x800000U - (cut - 1U);
  int32_t largest = 0;
  counts.nonfinite = 0;
  counts.first = -1;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t size = n - begin < kBlock ? n - begin : kBlock;
    int32_t bad = 0;
    if (size == kBlock) {
      index_block<Load>(x + begin, kBlock, carry, index, largest, bad);
      for (int64_t i = 0; i < kBlock; i += kTables) {
        for (int t = 0; t < kTables; ++t) ++tables[t][index[i + t]];
      }
    } else {
      index_block<Load>(x + begin, size, carry, index, largest, bad);
      for (int64_t i = 0; i < size; ++i) ++tables[0][index[i]];
    }
    if (bad != 0 && counts.first < 0) {
      int64_t at = begin;
      while (Load::magnitude(x[at]) < 0x7f800000U) ++at;
      counts.first = at;
    }
    counts.nonfinite += static_cast<uint32_t>(bad);
  }
  counts.largest = static_cast<uint32_t>(largest);
  for (int b = 0; b < ExponentCounts::kBins; ++b) {
    counts.bins[b] = tables[0][b] + tables[1][b] + tables[2][b] + tables[3][b];
  }
}

}  // namespace

const ExponentCounters ULP_EXPONENT_COUNTERS = {count<LoadF32>, count<LoadBf16>, count<LoadF16>};

}  // namespace ulp::kernels
