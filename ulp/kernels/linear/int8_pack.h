// Int8 codes of two matrices as the tile kernels read them, for products that are packed anew each time;
// internal to the room.
#pragma once

#include <cstdint>

#include "ulp/base/parallel.h"

namespace ulp::kernels {

/// Codes of a row a multiple of this apart are bytes of one line.
constexpr int64_t kCacheLine = 64;

/// Rows of codes, and how many of them are in a unit of what the kernels read: its bytes where they read bytes, half of
/// them where they read 16-bit numbers.
struct CodeRows {
  const int8_t* codes;
  int64_t step;
  int64_t rows, inner;
  int unit;
  int unit_bytes = 4;

  bool bytes() const { return unit == unit_bytes; }
};

/// Bytes from row to row of stage_codes(): an odd number of lines, for rows at a distance of a power of two
/// would fight for the same places of the cache.
constexpr int64_t staged_row_bytes(int64_t units, int64_t unit_bytes = 4) {
  return ((units * unit_bytes + kCacheLine - 1) / kCacheLine | 1) * kCacheLine;
}

/// [row][unit][unit_bytes]: bytes without sign (code + 128) or 16-bit numbers. What lies behind the last code
/// is 0.
void stage_codes(const CodeRows& from, int64_t units, uint8_t* to, const Parallel& parallel);

/// Panel number `panel`: [unit][lane][unit_bytes], bytes or 16-bit numbers, 0 where there is no code.
void pack_codes(const CodeRows& from, int64_t panel, int lanes, int64_t units, uint8_t* to);

}  // namespace ulp::kernels
