// Learns merges from counted words. Internal to the room.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ulp/io/tokenizer/characters.h"
#include "ulp/io/tokenizer/vocabulary.h"

namespace ulp::io {

/// The function or class that errors name.
inline constexpr const char* kTrainTokenizerWhere = "io.train_tokenizer";

struct PairTraining {
  int64_t vocab_size = 0, min_frequency = 0;
  std::vector<std::string> special = {};        ///< the first tokens
  std::vector<char32_t> alphabet = {};          ///< characters that are tokens in any case
  std::optional<int64_t> most_characters = {};  ///< the most frequent ones; others are left out of the words
  std::string prefix = {};                      ///< of tokens that do not begin a word
};

struct LearnedPairs {
  std::vector<std::string> tokens;                  ///< by id
  std::vector<std::pair<int64_t, int64_t>> merges;  ///< in the order of their ranks
};

/// The merges of `tokenizers`' BpeTrainer, ties in the order of the ids. `words`: each with its count, in the order in which they are seen.
LearnedPairs learn_pairs(const std::map<std::string, int64_t>& words, const PairTraining& options);

}  // namespace ulp::io
