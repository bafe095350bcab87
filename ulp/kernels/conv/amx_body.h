// The AMX convolution kernel as a template over the tile instructions: real in conv_amx.cpp, in software in
// conv_amx_emulated.cpp. Two tiles of pixels by two tiles of channels share their operands; the pixels are
// packed into the first-level cache once for all channels, the weights are streamed past it.
#pragma once

#include "ulp/kernels/conv/amx_kernel.h"
#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {
namespace {

// Tiles 0-3: sums [pixels][channels], 4-5: pixels, 6-7: weights.
inline TileConfig tile_config(int64_t pixels) {
  TileConfig config;
  const int64_t rows[2] = {pixels < 16 ? pixels : 16, pixels - 16};
  for (int t = 0; t < 8; ++t) {
    const int64_t of_pixels = rows[t < 4 ? t / 2 : t - 4 < 2 ? t - 4 : 0];
    const int64_t tile_rows = t >= 6 ? 16 : of_pixels;
    if (tile_rows <= 0) continue;
    config.rows[t] = static_cast<uint8_t>(tile_rows);
    config.bytes_per_row[t] = 64;
  }
  return config;
}

template <int kBytes>
inline void copy_chunk(const uint8_t* from, uint8_t* to) {
  __builtin_memcpy(to, from, kBytes);
}

/// `count` pixels x `k_tiles` tiles of the reduction -> [k tile][32 pixels][64 bytes].
template <int kBytes>
void pack_pixels(const AmxArgs& t, const uint8_t* const* pixels, int64_t count, int64_t k_begin,
                 int64_t k_tiles) {
  constexpr int64_t kPerTile = kAmxKBytes / kBytes;
  const int64_t* chunks = t.chunks + k_begin * kPerTile;
  for (int64_t m = 0; m < count; ++m) {
    for (int64_t k = 0; k < k_tiles; ++k) {
      uint8_t* to = t.packed + (k * kAmxPixels + m) * kAmxKBytes;
      for (int64_t i = 0; i < kPerTile; ++i) {
        const int64_t offset = chunks[k * kPerTile + i];
        if (offset < 0) {
          __builtin_memset(to + i * kBytes, 0, kBytes);
        } else {
          copy_chunk<kBytes>(pixels[m] + offset, to + i * kBytes);
        }
      }
    }
  }
}

template <typename Tiles, bool kInteger, int C, int A, int B>
inline void dot(Tiles& tiles) {
  if constexpr (kInteger) {
    tiles.template dot_u8<C, A, B>();
  } else {
    tiles.template dot_bf16<C, A, B>();
  }
}

/// Sums of MT x NP tiles over k_tiles; they start from the bias (every row the same: stride 0) or from
/// `sums`.
template <typename Tiles, bool kInteger, int MT, int NP>
void amx_block(Tiles& tiles, const uint8_t* a, const uint8_t* b, int64_t b_panel, int64_t k_tiles,
               uint8_t* sums, const uint8_t* bias) {
  constexpr int64_t kStride = NP * 64;
  const uint8_t* from = bias != nullptr ? bias : sums;
  const int64_t stride = bias != nullptr ? 0 : kStride, next = bias != nullptr ? 0 : 16 * kStride;
  tiles.template load<0>(from, stride);
  if constexpr (NP == 2) tiles.template load<1>(from + 64, stride);
  if constexpr (MT == 2) tiles.template load<2>(from + next, stride);
  if constexpr (MT == 2 && NP == 2) tiles.template load<3>(from + next + 64, stride);
  for (int64_t k = 0; k < k_tiles; ++k) {
    const uint8_t* pixels = a + k * kAmxPixels * kAmxKBytes;
    tiles.template stream<6>(b + k * 1024, 64);
    tiles.template load<4>(pixels, 64);
    dot<Tiles, kInteger, 0, 4, 6>(tiles);
    if constexpr (MT == 2) {
      tiles.template load<5>(pixels + 1024, 64);
      dot<Tiles, kInteger, 2, 5, 6>(tiles);
    }
    if constexpr (NP == 2) {
      tiles.template stream<7>(b + b_panel + k * 1024, 64);
      dot<Tiles, kInteger, 1, 4, 7>(tiles);
      if constexpr (MT == 2) dot<Tiles, kInteger, 3, 5, 7>(tiles);
    }
  }
  tiles.template store<0>(sums, kStride);
  if constexpr (NP == 2) tiles.template store<1>(sums + 64, kStride);
  if constexpr (MT == 2) tiles.template store<2>(sums + 16 * kStride, kStride);
  if constexpr (MT == 2 && NP == 2) tiles.template store<3>(sums + 16 * kStride + 64, kStride);
}

template <typename Tiles, bool kInteger>
void amx_blocks(Tiles& tiles, int64_t pixels, int64_t panels, const uint8_t* a, const uint8_t* b,
                int64_t b_panel, int64_t k_tiles, uint8_t* sums, const uint8_t* bias) {
  if (pixels > 16) {
    if (panels == 2) return amx_block<Tiles, kInteger, 2, 2>(tiles, a, b, b_panel, k_tiles, sums, bias);
    return amx_block<Tiles, kInteger, 2, 1>(tiles, a, b, b_panel, k_tiles, sums, bias);
  }
  if (panels == 2) return amx_block<Tiles, kInteger, 1, 2>(tiles, a, b, b_panel, k_tiles, sums, bias);
  amx_block<Tiles, kInteger, 1, 1>(tiles, a, b, b_panel, k_tiles, sums, bias);
}

template <typename Sums>
void amx_finish(const AmxArgs& t, uint8_t* sums, int64_t first, int64_t count, int64_t panel,
                int64_t panels) {
  const int64_t at = first * t.y_step + panel * kAmxLanes;
  const void* residual = t.residual == nullptr ? nullptr : t.residual + at * t.residual_bytes;
  auto* own = reinterpret_cast<typename Sums::Scalar*>(sums);
  const int64_t channel = t.channel + panel * kAmxLanes, channels = t.channels - panel * kAmxLanes;
  uint8_t* y = t.y + at * t.y_bytes;
  if (t.finish->curve != Activation::none) {
    finish_curve<Sums>(own, count, panels, *t.finish, channel, channels, y, residual, t.y_step);
  } else {
    finish_tile<Sums>(own, count, panels, *t.finish, channel, channels, y, residual, t.y_step);
  }
}

template <typename Tiles, typename Sums>
void amx_run(const AmxArgs& t) {
  constexpr bool kInteger = Sums::kInteger;
  Tiles tiles;
  int64_t configured = 0;
  const bool one_block = t.k_tiles <= kAmxKBlock;
  for (int64_t first = 0; first < t.pixels; first += kAmxPixels) {
    const int64_t count = t.pixels - first < kAmxPixels ? t.pixels - first : kAmxPixels;
    if (count != configured) tiles.configure(tile_config(count));
    configured = count;
    const uint8_t* pixels[kAmxPixels];
    for (int64_t m = 0; m < count; ++m) {
      pixels[m] = t.a + (first + m) / t.out_w * t.row_step + (first + m) % t.out_w * t.a_step;
    }
    for (int64_t k = 0; k < t.k_tiles; k += kAmxKBlock) {
      const int64_t k_tiles = t.k_tiles - k < kAmxKBlock ? t.k_tiles - k : kAmxKBlock;
      if (t.chunk_bytes == 64) {
        pack_pixels<64>(t, pixels, count, k, k_tiles);
      } else if (t.chunk_bytes == 32) {
        pack_pixels<32>(t, pixels, count, k, k_tiles);
      } else {
        pack_pixels<16>(t, pixels, count, k, k_tiles);
      }
      for (int64_t panel = 0; panel < t.panels; panel += 2) {
        const int64_t panels = t.panels - panel < 2 ? 1 : 2;
        uint8_t* sums = t.sums + (one_block ? 0 : panel / 2 * 4096);
        const uint8_t* bias =
            static_cast<const uint8_t*>(t.finish->bias) + (t.channel + panel * kAmxLanes) * 4;
        amx_blocks<Tiles, kInteger>(tiles, count, panels, t.packed, t.b + panel * t.b_panel + k * 1024,
                                    t.b_panel, k_tiles, sums, k == 0 ? bias : nullptr);
        if (k + k_tiles == t.k_tiles) amx_finish<Sums>(t, sums, first, count, panel, panels);
      }
    }
  }
  tiles.release();
}

}  // namespace
}  // namespace ulp::kernels
