// The tiles over nibbles with vectors of 64 bytes: done in software, since their logic is the same for every vector type and machines
// without AVX-512 test it so, and as instructions, which machines that count bits never choose.
#include <gtest/gtest.h>

#include "binary_reference.h"
#include "ulp/kernels/binary/binary_pack.h"
#include "ulp/kernels/binary/nibble_body.h"
#include "ulp/kernels/binary/one_lane.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

/// What binary_avx512.cpp has as instructions.
struct Emulated {
  using Floats = OneLane;
  struct I {
    uint8_t of[64];
  };
  static constexpr int64_t kBytes = 64;
  static constexpr int64_t kOutputs = 32;
  static I zero() { return {}; }
  static I load(const void* p) {
    I v;
    std::memcpy(v.of, p, sizeof(v.of));
    return v;
  }
  static I load_table(const uint8_t* p) {
    I v;
    for (int i = 0; i < 64; ++i) v.of[i] = p[i % 32];
    return v;
  }
  static I look_up(const I& table, const I& nibbles) {
    I v;
    for (int i = 0; i < 64; ++i) v.of[i] = table.of[i / 16 * 16 + (nibbles.of[i] & 15)];
    return v;
  }
  static I add(const I& a, const I& b) {
    I v;
    for (int i = 0; i < 64; ++i) v.of[i] = static_cast<uint8_t>(a.of[i] + b.of[i]);
    return v;
  }
  static void add_bytes(int32_t* counts, const I& v, bool first) {
    for (int o = 0; o < kOutputs; ++o) {
      const int at = o / 16 * 32 + o % 16;
      counts[o] = (first ? 0 : counts[o]) + v.of[at] + v.of[at + 16];
    }
  }
  static unsigned below(const int32_t* start, const int32_t* counts, const int32_t* threshold) {
    unsigned bits = 0;
    for (int i = 0; i < kPanelOutputs; ++i)
      bits |= static_cast<unsigned>(start[i] - 2 * counts[i] < threshold[i]) << i;
    return bits;
  }
};

constexpr BitCounts kCounts = count_bits();
constexpr int64_t kTaps = 3, kTapBytes = 50, kStep = 60, kTapStep = 1000, kChannels = 117, kPadded = 128;

/// Random pixels and weights of 117 channels in four panels, and what a tile reads of them.
struct Tile {
  std::vector<uint8_t> a = random_ints<uint8_t>(kTaps * kTapStep, 1, 0, 255);
  std::vector<uint8_t> w = random_ints<uint8_t>(kPadded * kTaps * kTapBytes, 2, 0, 255);
  Workspace packed{kPadded * kTaps * kTapBytes * 2};
  std::vector<int64_t> taps = {0, kTapStep, 2 * kTapStep};
  std::vector<int32_t> start = random_ints<int32_t>(kPadded, 3, -50, 2000);
  std::vector<int32_t> threshold = random_ints<int32_t>(kPadded, 4, -100, 100);
  std::vector<uint8_t> flip = random_ints<uint8_t>(kPadded / 8, 5, 0, 255);
  std::vector<float> scale = random_floats(kPadded, 6);
  BinaryFinish finish;

  Tile() {
    for (int64_t o = 0; o < kPadded; ++o) {
      for (int64_t s = 0; s < kTaps * kTapBytes; ++s) {
        const int64_t vector = o / 32 * kTaps * kTapBytes + s, at = vector * 64 + o % 32 / 16 * 32 + o % 16;
        weights()[at] = weight(o, s) & 15;
        weights()[at + 16] = weight(o, s) >> 4;
      }
    }
    finish.lo = -1e30F;
    finish.hi = 1e30F;
    flip.back() = flip[kChannels / 8] = 0;
    for (size_t o = kChannels; o < kPadded; ++o) threshold[o] = INT32_MIN;
  }

  uint8_t* weights() { return static_cast<uint8_t*>(packed.data()); }
  uint8_t weight(int64_t o, int64_t s) const { return w[static_cast<size_t>(o * kTaps * kTapBytes + s)]; }
  int32_t dot(int64_t pixel, int64_t o) const {
    int count = 0;
    for (int64_t s = 0; s < kTaps * kTapBytes; ++s) {
      const uint8_t x = a[static_cast<size_t>(s / kTapBytes * kTapStep + pixel * kStep + s % kTapBytes)];
      count += std::popcount(static_cast<unsigned>(x ^ weight(o, s)));
    }
    return start[static_cast<size_t>(o)] - 2 * count;
  }

  BinaryTileArgs args(int64_t panel) {
    BinaryTileArgs t{};
    t.a = a.data();
    t.a_step = kStep;
    t.taps = taps.data();
    t.tap_count = kTaps;
    t.tap_bytes = kTapBytes;
    t.b = weights() + panel * kTaps * kTapBytes * 64;
    t.b_panel = kTaps * kTapBytes * 64;
    t.table = &kCounts;
    t.finish = &finish;
    t.channel = panel * 32;
    t.channels = kChannels - t.channel;
    std::fill_n(t.start, kMostBinaryRows, start.data());
    std::fill_n(t.scale, kMostBinaryRows, scale.data());
    return t;
  }
};

void expect_tile(BinaryTileFn run, int64_t rows, int64_t panels) {
  Tile tile;
  for (int64_t panel = 0; panel + panels <= 4; panel += panels) {
    BinaryTileArgs t = tile.args(panel);
    const int64_t n = std::min<int64_t>(32 * panels, t.channels);
    Guarded<float> y(rows * n, 0);
    t.y = reinterpret_cast<uint8_t*>(y.data());
    t.y_step = n;
    run(t);
    ASSERT_TRUE(y.intact()) << rows << " rows, " << panels << " panels";
    for (int64_t i = 0; i < rows * n; ++i) {
      const int64_t o = t.channel + i % n;
      ASSERT_EQ(y.data()[i], tile.scale[static_cast<size_t>(o)] * static_cast<float>(tile.dot(i / n, o)))
          << rows << " rows, " << panels << " panels, element " << i;
    }
    tile.finish.threshold = tile.threshold.data();
    tile.finish.flip = tile.flip.data();
    const int64_t bytes = bit_bytes(n);
    Guarded<uint8_t> bits(rows * bytes, 0);
    t.y = bits.data();
    t.y_step = bytes;
    run(t);
    ASSERT_TRUE(bits.intact()) << rows << " rows, " << panels << " panels";
    for (int64_t i = 0; i < rows * n; ++i) {
      const int64_t o = t.channel + i % n;
      const bool flipped = (tile.flip[static_cast<size_t>(o / 8)] >> o % 8 & 1) != 0;
      const bool expected = (tile.dot(i / n, o) < tile.threshold[static_cast<size_t>(o)]) != flipped;
      ASSERT_EQ((bits.data()[i / n * bytes + i % n / 8] >> i % n % 8 & 1) != 0, expected)
          << rows << " rows, " << panels << " panels, bit " << i;
    }
    tile.finish = {.lo = -1e30F, .hi = 1e30F};
  }
}

/// Tiles of 1, 2 and 4 panels, by their rows.
void expect_tiles(const BinaryTileFn* one, const BinaryTileFn* two, const BinaryTileFn* four) {
  for (int64_t rows = 1; rows <= 8; ++rows) {
    expect_tile(one[rows], rows, 1);
    if (rows <= 4) expect_tile(two[rows], rows, 2);
    if (rows <= 2) expect_tile(four[rows], rows, 4);
  }
}

TEST(BinaryEmulated, TilesOf64BytesMatchPlainLoops) {
  constexpr BinaryTileFn one[] = {ULP_NIBBLES_8(Emulated, 1)}, two[] = {ULP_NIBBLES_4(Emulated, 2)},
                         four[] = {ULP_NIBBLES_2(Emulated, 4)};
  expect_tiles(one, two, four);
}

#if defined(__x86_64__)
TEST(BinaryAvx512, TilesMatchPlainLoopsOnMachinesThatCountBits) {
  if (!admits(Isa::avx512, Isa::avx512)) GTEST_SKIP() << "no AVX-512";
  expect_tiles(kBinaryAvx512.tile[0], kBinaryAvx512.tile[1], kBinaryAvx512.tile[2]);
}
#endif

}  // namespace
}  // namespace ulp::kernels
