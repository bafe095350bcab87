// What makes tokens of words: WordPiece and byte-level byte pair encoding. Internal to the room.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ulp/io/tokenizer/characters.h"
#include "ulp/io/tokenizer/tokenizer.h"
#include "ulp/io/tokenizer/vocabulary.h"

namespace ulp::io {

/// The longest piece of the vocabulary that a word begins with, again and again (Wu et al. 2016).
class WordPiece {
 public:
  struct Options {
    std::string prefix = "##";  ///< of pieces that are no beginning
    int64_t unknown = 0;        ///< for a word that cannot be cut so, as a whole
    int64_t longest_word = 100;
  };
  WordPiece(const TokenIds& vocabulary, Options options);
  void encode(std::span<const Character> word, Encoding& out) const;

 private:
  const TokenIds& vocabulary_;
  Options options_;
  size_t longest_piece_ = 0;  ///< in bytes
};

/// What two tokens beside each other become; the pair of the lowest rank first.
struct Merge {
  uint32_t rank = 0;
  int64_t result = 0;
};
using Merges = std::unordered_map<uint64_t, Merge>;
inline uint64_t pair_of(int64_t left, int64_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
}

/// Merges of neighbours from single bytes on (Sennrich et al. 2016; over bytes: Radford et al. 2019).
class BytePairs {
 public:
  struct Options {
    std::optional<int64_t> unknown =
        {};                     ///< for bytes outside of the vocabulary, which are left out without it
    bool fuse_unknown = false;  ///< neighbours of them become one
    bool whole_words =
        false;  ///< a word of the vocabulary is a token whatever the merges say ("ignore_merges")
  };
  BytePairs(const TokenIds& vocabulary, Merges merges, Options options);
  void encode(std::span<const Character> word, Encoding& out) const;

 private:
  const TokenIds& vocabulary_;
  Merges merges_;
  Options options_;
  std::vector<int64_t> bytes_;  ///< the token of each byte, -1 for none
};

}  // namespace ulp::io
