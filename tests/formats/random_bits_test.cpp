#include "ulp/formats/random_bits.h"

#include <gtest/gtest.h>

#include <set>

namespace {

using namespace ulp::formats;

// Known answers that the authors of Philox publish with Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(RandomBits, AreThePublishedOnes) {
  struct Known {
    uint64_t counter, stream, seed;
    uint32_t word[4];
  };
  const Known known[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {~0ULL, ~0ULL, ~0ULL, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x85a308d3243f6a88,
       0x0370734413198a2e,
       0x299f31d0a4093822,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Known& row : known) {
    const RandomBlock block = philox_block({row.seed, row.stream}, row.counter);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(block.word[i], row.word[i]);
  }
}

TEST(RandomBits, AGroupIsItsElements) {
  const RandomKey key{0x123456789abcdef0, 77};
  for (uint64_t group : {uint64_t{0}, uint64_t{1}, uint64_t{5'000'000'000}}) {
    uint32_t words[kRandomGroup];
    random_bits_of_group(key, group, words);
    for (uint64_t i = 0; i < kRandomGroup; ++i) {
      EXPECT_EQ(words[i], random_bits(key, group * kRandomGroup + i)) << group << " " << i;
    }
  }
}

TEST(RandomBits, EveryElementHasItsOwnWordOfItsOwnBlock) {
  std::set<uint32_t> seen;
  for (uint64_t i = 0; i < 4096; ++i) seen.insert(random_bits({1, 0}, i));
  // 4096 draws from 2^32: a repetition has a probability of 0.2 %, a wrong mapping repeats thousands.
  EXPECT_EQ(seen.size(), 4096u);
}

TEST(RandomBits, SeedAndStreamChangeThem) {
  EXPECT_NE(random_bits({1, 0}, 0), random_bits({2, 0}, 0));
  EXPECT_NE(random_bits({1, 0}, 0), random_bits({1, 1}, 0));
  EXPECT_NE(random_bits({1ULL << 32, 0}, 0), random_bits({0, 0}, 0));
}

}  // namespace
