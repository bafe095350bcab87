// Canonical Huffman codes of symbols of up to 8 bits, with code lengths of at most 15 bits. Internal.
//
// Canonical (RFC 1951, section 3.2.2): shorter codes come first, and symbols of one length follow each other
// in order, so the lengths are all that is stored: one byte for the last symbol used, then a half byte for
// each symbol up to it (0: unused), then the codes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/prune/storage/bytes.h"

namespace ulp::prune {

/// The longest code.
inline constexpr int kMostHuffmanBits = 15;

/// The length of each symbol's code, 0 where its count is 0: the shortest total under the limit, by
/// package-merge (Larmore and Hirschberg 1990, "A fast algorithm for optimal length-limited Huffman codes").
/// At least two counts are positive, and at most 2^limit.
ULP_API std::vector<uint8_t> huffman_lengths(std::span<const uint64_t> counts, int limit = kMostHuffmanBits);

/// The code of each symbol, from the lengths. Throws CodesProblem unless the code is complete: every sequence
/// of bits means something, and only one thing.
ULP_API std::vector<uint16_t> canonical_codes(std::span<const uint8_t> lengths);

/// Lengths and codes; empty where fewer than two symbols occur, which need no bits at all.
ULP_API Bytes huffman_encode(std::span<const uint8_t> symbols);

/// `count` symbols below 2^width. Throws CodesProblem for bytes that are no such code, or have more symbols
/// or fewer.
ULP_API std::vector<uint8_t> huffman_decode(std::span<const std::byte> bytes, uint64_t count, int width);

}  // namespace ulp::prune
