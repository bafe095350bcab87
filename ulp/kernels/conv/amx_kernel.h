// The contract between the AMX driver and its kernels: the real tiles and the emulated ones. Plain data, see
// float_bits.h.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/kernels/conv/epilogue.h"

namespace ulp::kernels {

constexpr int64_t kAmxPixels = 32;  ///< two tiles of 16 pixels
constexpr int64_t kAmxLanes = 16;   ///< output channels of a tile
constexpr int64_t kAmxKBytes = 64;  ///< of the reduction in one tile
constexpr int64_t kAmxKBlock =
    16;  ///< tiles of the reduction whose packed pixels fit 32 KB of the first cache

/// One task: `pixels` output pixels, row by row from the start of an output row, times all panels of a group.
struct AmxArgs {
  const uint8_t* a;  ///< staged input of the first pixel
  int64_t a_step, row_step, out_w, pixels;
  const int64_t* chunks;  ///< byte offset of each chunk of the reduction from the pixel; -1: zeros
  int64_t chunk_bytes;    ///< 16, 32 or 64
  int64_t k_tiles;
  const uint8_t* b;  ///< packed weights: [panel][k tile][16 rows of 4-byte units][16 lanes]
  int64_t b_panel, panels;
  const Finish* finish;
  int64_t channel, channels;
  uint8_t* y;               ///< first pixel, first channel of the group
  const uint8_t* residual;  ///< likewise, or null
  int64_t y_step, y_bytes, residual_bytes;
  uint8_t* packed;  ///< kAmxPixels * kAmxKBytes * min(k_tiles, kAmxKBlock) bytes
  uint8_t* sums;    ///< 4096 bytes; with several K blocks as much for each pair of panels
};

struct AmxKernels {
  const char* name_u8;
  const char* name_bf16;
  void (*u8)(const AmxArgs&);
  void (*bf16)(const AmxArgs&);
};

extern const AmxKernels kAmxKernels, kAmxEmulatedKernels;

/// What the hardware answers with an invalid opcode exception: throws ulp::Error. Only the emulation calls
/// it.
[[noreturn]] ULP_API void amx_undefined(const char* why);

/// The 64 bytes that LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace ulp::kernels
