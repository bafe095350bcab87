// Tokens beside the model's own, which are found in a text before it is split: [MASK], <|endoftext|>. Internal to the room.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ulp/io/tokenizer/characters.h"

namespace ulp::io {

/// As tokenizer.json describes it.
struct AddedToken {
  int64_t id = 0;
  std::string content = {};
  bool single_word = false;  ///< only where no word touches it
  bool lstrip = false;       ///< takes the spaces before it along
  bool rstrip = false;       ///< and those behind it
  bool normalized = false;   ///< stands in the normalized text rather than in the text as it came
  bool special = false;      ///< left out where texts are read by people
};

/// A part of a text: an added token, or what lies between them.
struct TextPart {
  std::span<const Character> characters;
  const AddedToken* token = nullptr;  ///< null: text
};

/// Finds the tokens in texts: the first place, and there the longest. The tokens outlive it.
class TokenFinder {
 public:
  /// The first of two tokens of the same characters counts; empty ones are left out.
  void add(std::span<const Character> content, const AddedToken& token);
  /// The parts of a text, in order, which cover it; none of them is empty text.
  std::vector<TextPart> split(std::span<const Character> text) const;

 private:
  struct Match {
    const AddedToken* token = nullptr;
    size_t length = 0;
  };
  Match longest_at(std::span<const Character> text) const;

  std::unordered_map<uint64_t, uint32_t> edges_;  ///< node and character to node
  std::unordered_map<uint32_t, const AddedToken*> ends_;
  uint32_t nodes_ = 1;
};

}  // namespace ulp::io
