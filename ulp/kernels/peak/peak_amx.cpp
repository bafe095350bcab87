// Products of whole tiles: 16 rows of 64 bytes each, into four sums that do not depend on each other.
#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/conv/amx_kernel.h"
#include "ulp/kernels/peak/peak_tables.h"

namespace ulp::kernels {
namespace {

constexpr int kRows = 16, kRowBytes = 64, kTileBytes = kRows * kRowBytes, kSums = 4;

/// Runs `dots`, four products a pass, on tiles whose 32-bit units are all `unit`.
template <typename Dots>
void run_tiles(int64_t passes, void* sink, uint32_t unit, Dots dots) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) config.rows[tile] = kRows, config.bytes_per_row[tile] = kRowBytes;
  alignas(64) uint32_t units[kTileBytes / 4];
  for (uint32_t& each : units) each = unit;
  // Without the barrier GCC drops the stores to a local configuration.
  __asm__ volatile("" ::"r"(&config) : "memory");
  __asm__ volatile("ldtilecfg (%0)" ::"r"(&config) : "memory");
  const int64_t stride = kRowBytes;
  __asm__ volatile(
      "tileloadd (%0,%1,1), %%tmm4\n\ttileloadd (%0,%1,1), %%tmm5\n\t"
      "tileloadd (%0,%1,1), %%tmm6\n\ttileloadd (%0,%1,1), %%tmm7\n\t"
      "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" ::"r"(units),
      "r"(stride)
      : "memory");
  for (int64_t pass = 0; pass < passes; ++pass) dots();
  __asm__ volatile("tilestored %%tmm0, (%0,%1,1)" ::"r"(units), "r"(stride) : "memory");
  __asm__ volatile("tilerelease" ::: "memory");
  __builtin_memcpy(sink, units, kRowBytes);
}

void run_bytes(int64_t passes, void* sink) {
  run_tiles(passes, sink, 0x04030201, [] {
    __asm__ volatile(
        "tdpbusd %tmm6, %tmm4, %tmm0\n\ttdpbusd %tmm7, %tmm4, %tmm1\n\t"
        "tdpbusd %tmm6, %tmm5, %tmm2\n\ttdpbusd %tmm7, %tmm5, %tmm3");
  });
}

void run_bf16(int64_t passes, void* sink) {
  run_tiles(passes, sink, 0x3c00bc00, [] {
    __asm__ volatile(
        "tdpbf16ps %tmm6, %tmm4, %tmm0\n\ttdpbf16ps %tmm7, %tmm4, %tmm1\n\t"
        "tdpbf16ps %tmm6, %tmm5, %tmm2\n\ttdpbf16ps %tmm7, %tmm5, %tmm3");
  });
}

/// A product multiplies each of 16 rows with 16 columns over 64 bytes.
constexpr double kBytesPerPass = 2.0 * kRows * 16 * kRowBytes * kSums;

constexpr PeakLoop kLoops[] = {{MathType::int8, "tdpbusd, tiles of 1 KiB", kBytesPerPass, run_bytes},
                               {MathType::bf16, "tdpbf16ps, tiles of 1 KiB", kBytesPerPass / 2, run_bf16}};

}  // namespace

const PeakTable kPeakAmx = {"amx", kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace ulp::kernels
