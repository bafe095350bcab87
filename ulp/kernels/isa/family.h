// The family of an x86-64 processor, from its signature. Internal to the room.
#pragma once

#include <cstdint>

namespace ulp::kernels {

/// The family in a signature (EAX of CPUID's leaf 1): the extended one counts on from 15.
constexpr uint32_t family_of(uint32_t signature) {
  const uint32_t family = signature >> 8 & 0xF;
  return family == 0xF ? family + (signature >> 20 & 0xFF) : family;
}

}  // namespace ulp::kernels
