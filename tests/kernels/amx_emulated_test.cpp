// The emulated tile instructions themselves: results against a plain product, and what the hardware would
// refuse. They are part of the library on x86-64 alone.
#if defined(__x86_64__)
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/conv/amx_emulated_tiles.h"

namespace ulp::kernels {
namespace {

TileConfig config(int m, int k_bytes, int n) {
  TileConfig c;
  c.rows[0] = static_cast<uint8_t>(m), c.bytes_per_row[0] = static_cast<uint16_t>(4 * n);
  c.rows[1] = static_cast<uint8_t>(m), c.bytes_per_row[1] = static_cast<uint16_t>(k_bytes);
  c.rows[2] = static_cast<uint8_t>(k_bytes / 4), c.bytes_per_row[2] = static_cast<uint16_t>(4 * n);
  return c;
}

TEST(EmulatedTiles, BytesMultiplyExactly) {
  const int m = 5, k = 48, n = 7;
  const auto a = test::random_ints<uint8_t>(m * k, 1, 0, 255);
  const auto b = test::random_ints<int8_t>(k * n, 2, -128, 127);  // [k / 4][n][4]
  std::vector<int32_t> c(m * n, 3);
  EmulatedTiles tiles;
  tiles.configure(config(m, k, n));
  tiles.load<0>(c.data(), 4 * n);
  tiles.load<1>(a.data(), k);
  tiles.stream<2>(b.data(), 4 * n);
  tiles.dot_u8<0, 1, 2>();
  std::vector<int32_t> y(m * n);
  tiles.store<0>(y.data(), 4 * n);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      int32_t sum = 3;
      for (int p = 0; p < k; ++p)
        sum +=
            int32_t{a[static_cast<size_t>(i * k + p)]} * b[static_cast<size_t>((p / 4 * n + j) * 4 + p % 4)];
      EXPECT_EQ(y[static_cast<size_t>(i * n + j)], sum);
    }
  }
}

TEST(EmulatedTiles, Bf16FlushesSubnormalsAndSumsPairs) {
  EmulatedTiles tiles;
  tiles.configure(config(1, 8, 1));
  const uint16_t a[4] = {0x3f80, 0x4000, 0x0001, 0x0080};  // 1, 2, a subnormal, the smallest normal
  const uint16_t b[4] = {0x4040, 0x4080, 0x7f00, 0x3f00};  // 3, 4, huge, 0.5
  float y = 0.5F;
  tiles.load<0>(&y, 4);
  tiles.load<1>(a, 8);
  tiles.load<2>(b, 4);
  tiles.dot_bf16<0, 1, 2>();
  tiles.store<0>(&y, 4);
  EXPECT_EQ(y, 11.5F);  // the last two products vanish
}

TEST(EmulatedTiles, WhatTheHardwareRefusesIsAnError) {
  EmulatedTiles tiles;
  std::vector<uint8_t> memory(1024);
  EXPECT_THROW(tiles.load<0>(memory.data(), 64), Error) << "before a configuration";
  EXPECT_THROW(tiles.configure([] {
    TileConfig c;
    c.palette = 2;
    return c;
  }()),
               Error);
  EXPECT_THROW(tiles.configure([] {
    TileConfig c;
    c.reserved[3] = 1;
    return c;
  }()),
               Error);
  EXPECT_THROW(tiles.configure(config(17, 64, 16)), Error) << "rows";
  EXPECT_THROW(tiles.configure(config(16, 64, 17)), Error) << "columns";
  EXPECT_THROW(tiles.configure([] {
    TileConfig c;
    c.rows[8] = 1, c.bytes_per_row[8] = 4;
    return c;
  }()),
               Error);
  TileConfig c = config(16, 32, 16);
  c.rows[2] = 16;
  tiles.configure(c);
  try {
    tiles.dot_u8<0, 1, 2>();
    FAIL() << "B.rows != A.colsb / 4 passed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rows of B"), std::string::npos) << error.what();
  }
  tiles.configure(config(16, 64, 16));
  EXPECT_THROW((tiles.dot_u8<0, 1, 1>()), Error) << "not distinct";
  EXPECT_THROW(tiles.load<5>(memory.data(), 64), Error) << "not configured";
  tiles.release();
  EXPECT_THROW(tiles.zero<0>(), Error) << "after release";
}

}  // namespace
}  // namespace ulp::kernels
#endif
