// Characters as Hugging Face's tokenizers see them: texts in UTF-8 with the place of each character, and the classes of Unicode that
// each part of a tokenizer goes by. The parts there were made with different versions of Unicode; ICU knows the version of each character.
// Internal to the room.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ulp::io {

/// A character and the bytes of the original text that it came from.
struct Character {
  char32_t code = 0;
  uint32_t begin = 0, end = 0;  ///< in bytes
};
using Characters = std::vector<Character>;

/// The characters of a text. Throws Error `[where]` naming the byte that is no UTF-8, and for a text of 2 GB and more.
Characters characters_of(const char* where, std::string_view text);
void append_utf8(std::string& text, char32_t code);
std::string utf8_of(std::span<const Character> characters);
/// The text with U+FFFD for what is no UTF-8. Throws Error for 2 GB and more.
std::string valid_utf8(std::string_view bytes);

/// White_Space of Unicode.
bool is_space(char32_t code);
/// What regular expressions call \w: letters, marks, digits, connectors.
bool is_word_character(char32_t code);

/// Letters (L), numbers (N), spaces and all others, as the pattern of byte-level BPE tells them apart (Unicode 16).
enum class LetterClass { letter, number, space, other };
LetterClass letter_class(char32_t code);

/// Control, format and private-use characters (Cc, Cf, Co of Unicode 8), but tab and line ends.
bool is_bert_control(char32_t code);
/// Punctuation of ASCII and of Unicode 8.
bool is_bert_punctuation(char32_t code);
/// The ideographs that BERT sets apart.
bool is_ideograph(char32_t code);
/// Lower case without regard to its neighbours.
void append_lower(Characters& out, const Character& character);
/// Canonical decomposition (NFD) without nonspacing marks (Mn of Unicode 8).
Characters without_accents(std::span<const Character> characters);

}  // namespace ulp::io
