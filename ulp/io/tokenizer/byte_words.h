// Texts before byte-level BPE: bytes as characters of a vocabulary, and GPT-2's words. Internal to the room.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/io/tokenizer/characters.h"

namespace ulp::io {

/// The character that stands for a byte in a vocabulary: itself where it can be seen, else one from U+0100 on.
char32_t character_of_byte(uint8_t byte);
/// The byte of such a character, -1 for any other.
int byte_of_character(char32_t code);
/// The bytes of a word as those characters.
std::string byte_characters(std::string_view bytes);

/// The words of GPT-2's pattern 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ in order; they
/// cover the text.
std::vector<std::span<const Character>> byte_level_words(std::span<const Character> text);

}  // namespace ulp::io
