#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "ulp/prune/storage/huffman.h"
#include "ulp/prune/storage/stream.h"

namespace ulp::prune {
namespace {

using Symbols = std::vector<uint8_t>;

/// Total bits of the symbols by plain Huffman (no limit): the sum of the weights of all inner nodes.
uint64_t unlimited_bits(std::vector<uint64_t> counts) {
  std::erase(counts, uint64_t{0});
  uint64_t bits = 0;
  while (counts.size() > 1) {
    std::ranges::sort(counts, std::ranges::greater());
    const uint64_t both = counts[counts.size() - 1] + counts[counts.size() - 2];
    counts.resize(counts.size() - 2);
    counts.push_back(both);
    bits += both;
  }
  return bits;
}

uint64_t bits_of(const std::vector<uint64_t>& counts, const std::vector<uint8_t>& lengths) {
  uint64_t bits = 0;
  for (size_t i = 0; i < counts.size(); ++i) bits += counts[i] * lengths[i];
  return bits;
}

/// The fewest bits under a limit, by trying all non-decreasing lengths of a complete code.
uint64_t fewest_bits(std::vector<uint64_t> counts, int limit) {
  std::ranges::sort(counts, std::ranges::greater());
  uint64_t best = UINT64_MAX;
  const auto grow = [&](const auto& self, size_t at, int length, int64_t room, uint64_t bits) -> void {
    if (at == counts.size()) {
      if (room == 0) best = std::min(best, bits);
      return;
    }
    for (int l = length; l <= limit; ++l) {
      const int64_t takes = int64_t{1} << (limit - l);
      if (takes <= room) self(self, at + 1, l, room - takes, bits + counts[at] * static_cast<uint64_t>(l));
    }
  };
  grow(grow, 0, 1, int64_t{1} << limit, 0);
  return best;
}

std::string problem_of(const auto& action) {
  try {
    action();
  } catch (const CodesProblem& problem) {
    return problem.text;
  }
  ADD_FAILURE() << "expected a CodesProblem, got none";
  return "";
}

TEST(StorageHuffman, LengthsAreOptimalWithoutALimitThatMatters) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> counts(2 + random() % 64);
    for (uint64_t& count : counts) count = random() % 1000;
    counts[0] = counts[1] = 1;  // two symbols at least
    EXPECT_EQ(bits_of(counts, huffman_lengths(counts)), unlimited_bits(counts)) << "round " << round;
  }
}

TEST(StorageHuffman, LengthsAreOptimalUnderALimit) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> counts(2 + random() % 7);
    for (uint64_t& count : counts) count = uint64_t{1} << random() % 12;
    const std::vector<uint8_t> lengths = huffman_lengths(counts, 3);
    EXPECT_LE(*std::ranges::max_element(lengths), 3);
    EXPECT_EQ(bits_of(counts, lengths), fewest_bits(counts, 3)) << "round " << round;
    EXPECT_NO_THROW(canonical_codes(lengths));
  }
}

TEST(StorageHuffman, FibonacciCountsStayWithinFifteenBits) {
  std::vector<uint64_t> counts = {1, 1};
  while (counts.size() < 40) counts.push_back(counts[counts.size() - 1] + counts[counts.size() - 2]);
  const std::vector<uint8_t> lengths = huffman_lengths(counts);
  EXPECT_EQ(*std::ranges::max_element(lengths), kMostHuffmanBits);
  EXPECT_GT(bits_of(counts, lengths), unlimited_bits(counts));
  EXPECT_NO_THROW(canonical_codes(lengths));
}

// The example of RFC 1951, section 3.2.2.
TEST(StorageHuffman, CanonicalCodesAreThoseOfTheStandard) {
  const std::vector<uint8_t> lengths = {3, 3, 3, 3, 3, 2, 4, 4};
  const std::vector<uint16_t> expected = {2, 3, 4, 5, 6, 0, 14, 15};
  EXPECT_EQ(canonical_codes(lengths), expected);
}

TEST(StorageHuffman, IncompleteAndOverfullCodesAreRefused) {
  for (const std::vector<uint8_t>& lengths : std::vector<std::vector<uint8_t>>{
           {}, {0, 0}, {1}, {1, 2}, {2, 2, 2}, {1, 1, 1}, {1, 1, 15}, {15, 15}, {16, 1}}) {
    EXPECT_THROW(canonical_codes(lengths), CodesProblem) << testing::PrintToString(lengths);
  }
}

TEST(StorageHuffman, AllSymbolsComeBack) {
  std::mt19937 random(3);
  for (const int width : {1, 2, 5, 6, 8}) {
    for (const size_t count : {2, 3, 100, 5000}) {
      Symbols symbols(count);
      std::geometric_distribution<int> skewed(0.2);
      for (uint8_t& symbol : symbols)
        symbol = static_cast<uint8_t>(std::min(skewed(random), (1 << width) - 1));
      symbols[0] = 0;
      symbols[1] = 1;
      const Bytes bytes = huffman_encode(symbols);
      EXPECT_EQ(huffman_decode(bytes, count, width), symbols) << "width " << width << ", count " << count;
    }
  }
}

TEST(StorageHuffman, CodesAreNearTheEntropy) {
  std::mt19937 random(4);
  std::binomial_distribution<int> bell(63, 0.5);
  Symbols symbols(100000);
  std::vector<double> counts(64);
  for (uint8_t& symbol : symbols) ++counts[symbol = static_cast<uint8_t>(bell(random))];
  double entropy = 0;
  for (const double count : counts) entropy -= count > 0 ? count * std::log2(count / 100000.0) : 0;
  const auto bits = 8.0 * static_cast<double>(huffman_encode(symbols).size());
  EXPECT_GE(bits, entropy);
  EXPECT_LE(bits, entropy * 1.02);
}

TEST(StorageHuffman, DamagedCodesAreRefused) {
  const Symbols symbols = {0, 1, 2, 2, 2, 2, 3, 2, 2, 0};
  const Bytes bytes = huffman_encode(symbols);
  EXPECT_EQ(huffman_decode(bytes, symbols.size(), 2), symbols);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(huffman_decode(std::span(bytes).first(size), symbols.size(), 2), CodesProblem) << size;
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(problem_of([&] { huffman_decode(longer, symbols.size(), 2); }),
            "bits are left after the last code");
  EXPECT_EQ(problem_of([&] { huffman_decode(bytes, uint64_t{1} << 60, 2); }), "the codes end early");
  EXPECT_NE(problem_of([&] { huffman_decode(bytes, symbols.size(), 1); }).find("the symbol 3 of 1 bits"),
            std::string::npos);
  EXPECT_THROW(huffman_decode(bytes, symbols.size() + 20, 2), CodesProblem);
  EXPECT_TRUE(huffman_encode(Symbols{}).empty());
  EXPECT_TRUE(huffman_encode(Symbols{7, 7, 7}).empty());
}

TEST(StorageStream, EveryFormComesBackAndTheSmallestIsTaken) {
  std::mt19937 random(5);
  Symbols flat(1000), skewed(1000), periodic(1000);
  for (size_t i = 0; i < flat.size(); ++i) {
    flat[i] = static_cast<uint8_t>(random() % 32);
    skewed[i] = random() % 4 == 0 ? static_cast<uint8_t>(random() % 32) : 3;
    periodic[i] = static_cast<uint8_t>(i % 32);
  }
  const auto form_of = [](const Symbols& symbols, int width, EntropyCoder coder) {
    Bytes bytes;
    put_stream(bytes, symbols, width, coder);
    ByteReader reader(bytes);
    EXPECT_EQ(take_stream(reader, symbols.size(), width), symbols);
    EXPECT_EQ(reader.left(), 0U);
    return std::to_integer<int>(bytes[0]);
  };
  EXPECT_EQ(form_of(flat, 5, EntropyCoder::smallest), 0);
  EXPECT_EQ(form_of(skewed, 5, EntropyCoder::smallest), 1);
  EXPECT_EQ(form_of(periodic, 5, EntropyCoder::smallest), 2);
  EXPECT_EQ(form_of(periodic, 5, EntropyCoder::huffman), 0);
  EXPECT_EQ(form_of(skewed, 5, EntropyCoder::none), 0);
  for (int width = 0; width <= 8; ++width) {
    for (const size_t count : {0, 1, 7, 8, 9, 1000}) {
      Symbols symbols(count);
      for (uint8_t& symbol : symbols) symbol = static_cast<uint8_t>(random() % (1U << width));
      for (const EntropyCoder coder : {EntropyCoder::none, EntropyCoder::huffman, EntropyCoder::smallest})
        form_of(symbols, width, coder);
    }
  }
}

// Deflate makes these longer than its own bound of them (zlib 1.2.13): the form is then not taken.
TEST(StorageStream, WhatDeflateCannotShrinkIsPackedOrHuffman) {
  for (size_t count = 1; count <= 111; ++count) {
    Symbols symbols(count);
    for (size_t i = 0; i < count; ++i) symbols[i] = static_cast<uint8_t>(144 + i);
    Bytes bytes;
    put_stream(bytes, symbols, 8, EntropyCoder::smallest);
    EXPECT_EQ(bytes.size(), 1 + count);
    ByteReader reader(bytes);
    EXPECT_EQ(take_stream(reader, count, 8), symbols) << count;
  }
}

// The longest stream of deflate that pays takes one byte less, with its count, than packed bits.
TEST(StorageStream, DeflateIsTakenWhereItSavesOneByte) {
  size_t saved_one = 0;
  std::mt19937 random(7);
  for (size_t count = 4; count < 120; ++count) {
    Symbols symbols(count);
    for (uint8_t& symbol : symbols) symbol = static_cast<uint8_t>(random());
    for (size_t repeats = 3; repeats < std::min<size_t>(count, 12); ++repeats) {
      std::fill_n(symbols.begin(), repeats, symbols[0]);
      Bytes bytes;
      put_stream(bytes, symbols, 8, EntropyCoder::smallest);
      ByteReader reader(bytes);
      EXPECT_EQ(take_stream(reader, count, 8), symbols) << count << ", " << repeats;
      saved_one += bytes[0] == std::byte{2} && bytes.size() == count;
    }
  }
  EXPECT_GT(saved_one, 0U);
}

// Han et al. store codes of 5 bits in 5 bits: eight in five bytes, the first bit first.
TEST(StorageStream, PackedBitsAreInTheOrderOfNumPy) {
  Bytes bytes;
  put_stream(bytes, Symbols{1, 2, 3, 31, 0, 16, 8, 7}, 5, EntropyCoder::none);
  const Bytes expected = {std::byte{0},          std::byte{0b00001000}, std::byte{0b10000111},
                          std::byte{0b11110000}, std::byte{0b01000001}, std::byte{0b00000111}};
  EXPECT_EQ(bytes, expected);
}

TEST(StorageStream, HostileStreamsAreRefused) {
  const auto refusal = [](const std::vector<int>& bytes, uint64_t count, int width) {
    Bytes all;
    for (const int byte : bytes) all.push_back(static_cast<std::byte>(byte));
    ByteReader reader(all);
    return problem_of([&] { take_stream(reader, count, width); });
  };
  EXPECT_NE(refusal({3, 0}, 1, 8).find("form 0, 1 or 2, got 3"), std::string::npos);
  EXPECT_NE(refusal({}, 1, 8).find("more bytes"), std::string::npos);
  EXPECT_NE(refusal({0, 1}, uint64_t{1} << 62, 8).find("more bytes"), std::string::npos);
  EXPECT_NE(refusal({0, 1}, ~uint64_t{0}, 8).find("more bytes"), std::string::npos);
  EXPECT_EQ(refusal({0, 0b00001001}, 1, 5), "bits are left after the last code");
  EXPECT_NE(refusal({2, 2, 3, 0}, 1 << 20, 8).find("too short"), std::string::npos);
  EXPECT_NE(refusal({2, 2, 3, 0}, 1, 8).find("damaged"), std::string::npos);
  EXPECT_NE(refusal({2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2}, 1, 8).find("well-formed"),
            std::string::npos);
  EXPECT_NE(refusal({2, 0x80, 0}, 1, 8).find("well-formed"), std::string::npos);
  EXPECT_NE(refusal({2, 200, 1, 0}, 1, 8).find("expected 200 more bytes"), std::string::npos);
  // A code of 8 bits where 2 are allowed: 9 stored as it is by deflate.
  EXPECT_NE(refusal({2, 6, 1, 1, 0, 0xfe, 0xff, 9}, 1, 2).find("more than 2 bits"), std::string::npos);
}

}  // namespace
}  // namespace ulp::prune
