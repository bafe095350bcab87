#include "ulp/kernels/linear/int8_pack.h"

#include <algorithm>
#include <cstring>

#include "ulp/kernels/common/split.h"

namespace ulp::kernels {
namespace {

void bytes_of_row(const int8_t* __restrict from, int64_t n, uint8_t* __restrict to) {
  for (int64_t k = 0; k < n; ++k) to[k] = static_cast<uint8_t>(from[k]) ^ 0x80U;
}
void words_of_row(const int8_t* __restrict from, int64_t n, int16_t* __restrict to) {
  for (int64_t k = 0; k < n; ++k) to[k] = from[k];
}

template <typename Code, int kBytes>
void put_unit(const int8_t* from, int64_t n, uint8_t* to) {
  Code unit[kBytes / sizeof(Code)] = {};
  for (int64_t i = 0; i < n; ++i) unit[i] = from[i];
  std::memcpy(to, unit, kBytes);
}

/// A few units of all lanes at a time: what is written stays in the first-level cache until its lines are
/// whole.
template <typename Code, int kBytes>
void pack_lanes(const CodeRows& from, int64_t first, int64_t count, int lanes, uint8_t* to) {
  constexpr int64_t kUnit = kBytes / sizeof(Code), kBlock = 64;
  const int64_t step = int64_t{lanes} * kBytes, whole = from.inner / kUnit, rest = from.inner % kUnit;
  for (int64_t begin = 0; begin < whole; begin += kBlock) {
    const int64_t end = std::min(whole, begin + kBlock);
    for (int64_t lane = 0; lane < count; ++lane) {
      const int8_t* codes = from.codes + (first + lane) * from.step;
      uint8_t* out = to + lane * kBytes;
      for (int64_t u = begin; u < end; ++u) put_unit<Code, kBytes>(codes + u * kUnit, kUnit, out + u * step);
    }
  }
  for (int64_t lane = 0; rest > 0 && lane < count; ++lane) {
    put_unit<Code, kBytes>(from.codes + (first + lane) * from.step + whole * kUnit, rest,
                           to + whole * step + lane * kBytes);
  }
}

}  // namespace

void stage_codes(const CodeRows& from, int64_t units, uint8_t* to, const Parallel& parallel) {
  const int64_t row_bytes = staged_row_bytes(units, from.unit_bytes);
  const int64_t per_task = std::max<int64_t>(1, kWorthAThread * 4 / row_bytes);
  const int64_t written = from.inner * (from.bytes() ? 1 : 2);
  parallel.run((from.rows + per_task - 1) / per_task, [&](int64_t task, int) {
    const int64_t end = std::min(from.rows, (task + 1) * per_task);
    for (int64_t r = task * per_task; r < end; ++r) {
      const int8_t* codes = from.codes + r * from.step;
      uint8_t* row = to + r * row_bytes;
      if (from.bytes()) {
        bytes_of_row(codes, from.inner, row);
      } else {
        words_of_row(codes, from.inner, reinterpret_cast<int16_t*>(row));
      }
      std::memset(row + written, 0, static_cast<size_t>(units * from.unit_bytes - written));
    }
  });
}

void pack_codes(const CodeRows& from, int64_t panel, int lanes, int64_t units, uint8_t* to) {
  const int64_t first = panel * lanes, count = std::min<int64_t>(lanes, from.rows - first);
  if (count < lanes || units * from.unit > from.inner) {
    std::memset(to, 0, static_cast<size_t>(units * lanes * from.unit_bytes));
  }
  if (from.unit_bytes == 8) {
    pack_lanes<int8_t, 8>(from, first, count, lanes, to);
  } else if (from.unit_bytes == 2) {
    pack_lanes<int8_t, 2>(from, first, count, lanes, to);
  } else if (from.bytes()) {
    pack_lanes<int8_t, 4>(from, first, count, lanes, to);
  } else {
    pack_lanes<int16_t, 4>(from, first, count, lanes, to);
  }
}

}  // namespace ulp::kernels
