// The tables that each instruction set fills in. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/kernels/peak/peak.h"

namespace ulp::kernels {

struct PeakTable {
  const char* isa;
  const PeakLoop* loops;
  int count;
};
extern const PeakTable kPeakPortable, kPeakAvx2, kPeakAvx512, kPeakAvx512Vnni, kPeakAvx512Bf16,
    kPeakAvx512Vpopcntdq, kPeakAmx;
extern const PeakTable kPeakNeon, kPeakNeonDotprod, kPeakNeonI8mm, kPeakNeonBf16;

/// Passes in the order of MemoryPass.
struct MemoryTable {
  double (*pass[kMemoryPassCount])(double* a, double* b, double* c, int64_t count);
};
extern const MemoryTable kMemoryPortable, kMemoryAvx2, kMemoryAvx512;

}  // namespace ulp::kernels
