// The tile instructions in software, for testing AMX kernels on machines without them. Where the hardware
// would raise an exception this calls amx_undefined().
//
// Reference: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, LDTILECFG, TILELOADD,
// TDPBUSD, TDPBF16PS.
#pragma once

#include "ulp/kernels/conv/amx_kernel.h"

namespace ulp::kernels {
namespace {

class EmulatedTiles {
 public:
  void configure(const TileConfig& config) {
    if (config.palette != 1) amx_undefined("palette other than 1");
    for (uint8_t byte : config.reserved) {
      if (byte != 0) amx_undefined("reserved bytes of the tile configuration set");
    }
    for (int t = 0; t < 16; ++t) {
      if (t >= kTiles && (config.rows[t] != 0 || config.bytes_per_row[t] != 0))
        amx_undefined("more than 8 tiles");
      if (config.rows[t] > 16 || config.bytes_per_row[t] > 64)
        amx_undefined("tile larger than 16 rows of 64 bytes");
      if ((config.rows[t] == 0) != (config.bytes_per_row[t] == 0))
        amx_undefined("tile with rows or columns only");
    }
    config_ = config;
    configured_ = true;
    for (Tile& tile : tiles_) tile = Tile{};
  }
  void release() { configured_ = false; }

  template <int T>
  void zero() {
    check(T);
    tiles_[T] = Tile{};
  }
  template <int T>
  void load(const void* base, int64_t stride) {
    check(T);
    tiles_[T] = Tile{};
    for (int r = 0; r < config_.rows[T]; ++r) {
      __builtin_memcpy(tiles_[T].bytes[r], static_cast<const uint8_t*>(base) + r * stride,
                       config_.bytes_per_row[T]);
    }
  }
  template <int T>
  void stream(const void* base, int64_t stride) {
    load<T>(base, stride);
  }
  template <int T>
  void store(void* base, int64_t stride) {
    check(T);
    for (int r = 0; r < config_.rows[T]; ++r) {
      __builtin_memcpy(static_cast<uint8_t*>(base) + r * stride, tiles_[T].bytes[r],
                       config_.bytes_per_row[T]);
    }
  }

  /// C += A (unsigned bytes) * B (signed bytes), four products a lane, wrapping.
  template <int C, int A, int B>
  void dot_u8() {
    check_product(C, A, B);
    for (int m = 0; m < config_.rows[C]; ++m) {
      for (int k = 0; k < config_.bytes_per_row[A] / 4; ++k) {
        for (int n = 0; n < config_.bytes_per_row[C] / 4; ++n) {
          uint32_t sum = get<uint32_t>(C, m, n);
          for (int i = 0; i < 4; ++i) {
            const int32_t a = tiles_[A].bytes[m][4 * k + i];
            const int32_t b = static_cast<int8_t>(tiles_[B].bytes[k][4 * n + i]);
            sum += static_cast<uint32_t>(a * b);
          }
          set(C, m, n, sum);
        }
      }
    }
  }

  /// C += A * B in bf16: even and odd products in two sums that start from zero, subnormals flushed.
  template <int C, int A, int B>
  void dot_bf16() {
    check_product(C, A, B);
    for (int m = 0; m < config_.rows[C]; ++m) {
      for (int n = 0; n < config_.bytes_per_row[C] / 4; ++n) {
        float sums[2] = {0.0F, 0.0F};
        for (int k = 0; k < config_.bytes_per_row[A] / 4; ++k) {
          const uint32_t a = get<uint32_t>(A, m, k), b = get<uint32_t>(B, k, n);
          sums[0] = step(bits_to_float(a << 16), bits_to_float(b << 16), sums[0]);
          sums[1] = step(bits_to_float(a & 0xffff0000U), bits_to_float(b & 0xffff0000U), sums[1]);
        }
        set(C, m, n, flush(flush(get<float>(C, m, n)) + flush(sums[0] + sums[1])));
      }
    }
  }

 private:
  static constexpr int kTiles = 8;
  struct Tile {
    uint8_t bytes[16][64] = {};
  };

  void check(int t) const {
    if (!configured_) amx_undefined("tile used before LDTILECFG");
    if (config_.rows[t] == 0) amx_undefined("tile that is not configured");
  }
  void check_product(int c, int a, int b) const {
    check(c);
    check(a);
    check(b);
    if (c == a || c == b || a == b) amx_undefined("product of tiles that are not distinct");
    if (config_.bytes_per_row[c] % 4 != 0 || config_.bytes_per_row[a] % 4 != 0 ||
        config_.bytes_per_row[b] % 4 != 0) {
      amx_undefined("row that is not a multiple of 4 bytes");
    }
    if (config_.rows[c] != config_.rows[a]) amx_undefined("rows of C and A differ");
    if (config_.bytes_per_row[c] != config_.bytes_per_row[b]) amx_undefined("columns of C and B differ");
    if (config_.bytes_per_row[a] / 4 != config_.rows[b]) amx_undefined("columns of A and rows of B differ");
  }
  template <typename T>
  T get(int tile, int row, int lane) const {
    T value;
    __builtin_memcpy(&value, tiles_[tile].bytes[row] + 4 * lane, 4);
    return value;
  }
  template <typename T>
  void set(int tile, int row, int lane, T value) {
    __builtin_memcpy(tiles_[tile].bytes[row] + 4 * lane, &value, 4);
  }
  static float flush(float v) {
    return (float_to_bits(v) & 0x7f800000U) == 0 ? bits_to_float(float_to_bits(v) & 0x80000000U) : v;
  }
  static float step(float a, float b, float sum) { return flush(__builtin_fmaf(flush(a), flush(b), sum)); }

  TileConfig config_;
  bool configured_ = false;
  Tile tiles_[kTiles];
};

}  // namespace
}  // namespace ulp::kernels
