// What the processor and the operating system offer; internal to the room.
#pragma once

#include <cstdint>

namespace ulp::kernels {

/// Each flag means "usable": the instructions exist and the kernel saves the registers they need.
struct CpuFeatures {
  bool avx2 = false;              ///< AVX2 and FMA
  bool avx512 = false;            ///< F, BW, DQ, VL
  bool avx512_vnni = false;       ///< vpdpbusd on 512-bit registers
  bool avx512_bf16 = false;       ///< vdpbf16ps
  bool avx512_vbmi2 = false;      ///< vpexpandb, and what avx512_vnni says
  bool avx512_vpopcntdq = false;  ///< vpopcntq, and what avx512 says
  bool amx = false;               ///< tiles, int8 and bf16 products, and the permission to use them
  bool intel = false;             ///< vdpbf16ps runs at half the rate of FMA there
  bool amd_family_1a = false;     ///< Zen 5 with AVX-512, whose units are 512 bits wide
  bool neon = false;              ///< Advanced SIMD of 64-bit Arm, fused multiply-add included
  bool neon_dotprod = false;      ///< udot, sdot
  bool neon_i8mm = false;         ///< ummla, usmmla, usdot, and what neon_dotprod says
  bool neon_bf16 = false;         ///< bfdot, bfmmla, and what neon_i8mm says
};

/// Detected on first use; asks the operating system for the AMX registers then.
const CpuFeatures& cpu_features();

/// What cpu_features() keeps. A file for each architecture (cpu_x86.cpp, cpu_arm.cpp): flags of others stay false.
CpuFeatures detect_cpu();

/// Bytes of the second-level cache of a core; 512 KB where the system does not say.
int64_t second_level_cache();

}  // namespace ulp::kernels
