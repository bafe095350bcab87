// Fetching memory ahead of its use. A function with internal linkage, see float_bits.h for why.
#pragma once

#include <cstdint>

namespace ulp::kernels {

/// Asks for the lines of [from, from + bytes), `from` being at the begin of one; nothing is read, so that the
/// range may lie outside of every array.
template <bool kWrite = false>
static inline __attribute__((always_inline)) void prefetch_lines(const void* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(static_cast<const char*>(from) + at, kWrite);
    __asm__ volatile("");  // GCC drops loops that do nothing but prefetch
  }
}

}  // namespace ulp::kernels
