#include "ulp/io/tokenizer/byte_words.h"

#include <array>

namespace ulp::io {

namespace {

/// Bytes that stand for themselves: those of Latin-1 that can be seen.
constexpr bool is_seen(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr int kBytes = 256;

constexpr std::array<char32_t, kBytes> kCharacters = [] {
  std::array<char32_t, kBytes> made{};
  char32_t next = 0x100;
  for (int byte = 0; byte < kBytes; ++byte)
    made[static_cast<size_t>(byte)] = is_seen(byte) ? static_cast<char32_t>(byte) : next++;
  return made;
}();

/// The byte of each character, -1 for none; no character of a byte is beyond the bytes of twice.
constexpr std::array<int16_t, 2 * kBytes> kBytesOf = [] {
  std::array<int16_t, 2 * kBytes> made{};
  made.fill(-1);
  for (int16_t byte = 0; byte < kBytes; ++byte) made[kCharacters[static_cast<size_t>(byte)]] = byte;
  return made;
}();

/// The length of 's, 't, 're, 've, 'm, 'll or 'd at the beginning; 0: none of them.
size_t contraction(std::span<const Character> text) {
  if (text.size() < 2 || text[0].code != '\'') return 0;
  const char32_t first = text[1].code;
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (text.size() < 3) return 0;
  const char32_t second = text[2].code;
  const bool known =
      (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return known ? 3 : 0;
}

}  // namespace

char32_t character_of_byte(uint8_t byte) {
  return kCharacters[byte];
}

int byte_of_character(char32_t code) {
  return code < kBytesOf.size() ? kBytesOf[code] : -1;
}

std::string byte_characters(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(text, character_of_byte(static_cast<uint8_t>(byte)));
  return text;
}

std::vector<std::span<const Character>> byte_level_words(std::span<const Character> text) {
  std::vector<std::span<const Character>> words;
  const auto run_end = [&](size_t at, LetterClass is) {
    while (at < text.size() && letter_class(text[at].code) == is) ++at;
    return at;
  };
  for (size_t at = 0; at < text.size();) {
    size_t end = at + contraction(text.subspan(at));
    if (end == at) {
      const size_t first = at + (text[at].code == ' ' && at + 1 < text.size() ? 1 : 0);
      LetterClass is = letter_class(text[first].code);
      if (is != LetterClass::space) {
        end = run_end(first, is);
      } else {  // spaces; the last one before a word is left to it
        end = run_end(at, LetterClass::space);
        if (end < text.size() && end - at > 1) --end;
      }
    }
    words.push_back(text.subspan(at, end - at));
    at = end;
  }
  return words;
}

}  // namespace ulp::io
