// Elements as unsigned integers of their bits. Internal.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/Half.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

namespace ulp::prune {

/// How f32 elements that 16 bits hold exactly are written.
enum class Narrow : uint8_t { none, bf16, f16 };

/// The bits of element `i` of `size` bytes.
inline uint64_t bits_at(const void* data, size_t size, size_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const std::byte*>(data) + i * size, size);
  return bits;
}

inline void set_bits(void* data, size_t size, size_t i, uint64_t bits) {
  std::memcpy(static_cast<std::byte*>(data) + i * size, &bits, size);
}

inline uint64_t narrowed(uint64_t bits, Narrow narrow) {
  constexpr int kBf16Shift = 16;
  if (narrow == Narrow::bf16) return bits >> kBf16Shift;
  if (narrow == Narrow::f16) return c10::Half(std::bit_cast<float>(static_cast<uint32_t>(bits))).x;
  return bits;
}

inline uint64_t widened(uint64_t bits, Narrow narrow) {
  constexpr int kBf16Shift = 16;
  if (narrow == Narrow::bf16) return bits << kBf16Shift;
  if (narrow == Narrow::f16)
    return std::bit_cast<uint32_t>(
        static_cast<float>(c10::Half(static_cast<uint16_t>(bits), c10::Half::from_bits())));
  return bits;
}

/// Whether all elements come back from that form. NaN never does from f16: processors differ in what they
/// make of one.
inline bool survive(std::span<const uint64_t> elements, Narrow narrow) {
  for (const uint64_t bits : elements) {
    const bool nan = std::isnan(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    if ((narrow == Narrow::f16 && nan) || widened(narrowed(bits, narrow), narrow) != bits) return false;
  }
  return true;
}

}  // namespace ulp::prune
