#include "ulp/io/tokenizer/characters.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "ulp/base/error.h"

namespace ulp::io {

namespace {

/// The classes of BERT's parts are those of Unicode 8, decomposition that of Unicode 9, whatever ICU has.
constexpr uint8_t kBertVersion = 8, kDecompositionVersion = 9;

bool newer_than(char32_t code, uint8_t version) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(code), age);
  return age[0] > version;
}

/// The category as a mask; none for characters that a Unicode of that version did not have.
uint32_t category(char32_t code, uint8_t version) {
  return newer_than(code, version) ? 0 : U_MASK(u_charType(static_cast<UChar32>(code)));
}

struct CharacterClass {
  char32_t first, last;
  LetterClass is;
};

/// Letters and numbers that Unicode 15.1 and 16 brought; ICU 72 has Unicode 15.
constexpr auto kNewer = std::to_array<CharacterClass>({
    {0x1C89, 0x1C8A, LetterClass::letter},   {0xA7CB, 0xA7CD, LetterClass::letter},
    {0xA7DA, 0xA7DC, LetterClass::letter},   {0x105C0, 0x105F3, LetterClass::letter},
    {0x10D40, 0x10D49, LetterClass::number}, {0x10D4A, 0x10D65, LetterClass::letter},
    {0x10D6F, 0x10D85, LetterClass::letter}, {0x10EC2, 0x10EC4, LetterClass::letter},
    {0x11380, 0x11389, LetterClass::letter}, {0x1138B, 0x1138B, LetterClass::letter},
    {0x1138E, 0x1138E, LetterClass::letter}, {0x11390, 0x113B5, LetterClass::letter},
    {0x113B7, 0x113B7, LetterClass::letter}, {0x113D1, 0x113D1, LetterClass::letter},
    {0x113D3, 0x113D3, LetterClass::letter}, {0x116D0, 0x116E3, LetterClass::number},
    {0x11BC0, 0x11BE0, LetterClass::letter}, {0x11BF0, 0x11BF9, LetterClass::number},
    {0x13460, 0x143FA, LetterClass::letter}, {0x16100, 0x1611D, LetterClass::letter},
    {0x16130, 0x16139, LetterClass::number}, {0x16D40, 0x16D6C, LetterClass::letter},
    {0x16D70, 0x16D79, LetterClass::number}, {0x18CFF, 0x18CFF, LetterClass::letter},
    {0x1CCF0, 0x1CCF9, LetterClass::number}, {0x1E5D0, 0x1E5ED, LetterClass::letter},
    {0x1E5F0, 0x1E5F0, LetterClass::letter}, {0x1E5F1, 0x1E5FA, LetterClass::number},
    {0x2EBF0, 0x2EE5D, LetterClass::letter},
});

LetterClass newer_class(char32_t code) {
  const auto after =
      std::upper_bound(kNewer.begin(), kNewer.end(), code,
                       [](char32_t c, const CharacterClass& range) { return c < range.first; });
  if (after == kNewer.begin() || code > (after - 1)->last) return LetterClass::other;
  return (after - 1)->is;
}

/// Marks that Unicode 16 brought, by first and last.
constexpr auto kNewerMarks = std::to_array<std::pair<char32_t, char32_t>>({{0x897, 0x897},
                                                                           {0x10D69, 0x10D6D},
                                                                           {0x10EFC, 0x10EFC},
                                                                           {0x113B8, 0x113C0},
                                                                           {0x113C2, 0x113C2},
                                                                           {0x113C5, 0x113C5},
                                                                           {0x113C7, 0x113CA},
                                                                           {0x113CC, 0x113D0},
                                                                           {0x113D2, 0x113D2},
                                                                           {0x113E1, 0x113E2},
                                                                           {0x11F5A, 0x11F5A},
                                                                           {0x1611E, 0x1612F},
                                                                           {0x1E5EE, 0x1E5EF}});

bool is_newer_mark(char32_t code) {
  return std::any_of(kNewerMarks.begin(), kNewerMarks.end(),
                     [&](const auto& range) { return code >= range.first && code <= range.second; });
}

struct Cased {
  char32_t first, last;  ///< every `step`-th of them
  int32_t to_lower;
  char32_t step = 1;
};

/// Capitals that Unicode 16 and 17 brought.
constexpr auto kNewerCased = std::to_array<Cased>({{0x1C89, 0x1C89, 1},
                                                   {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
                                                   {0xA7CC, 0xA7CE, 1, 2},
                                                   {0xA7D2, 0xA7D4, 1, 2},
                                                   {0xA7DA, 0xA7DA, 1},
                                                   {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
                                                   {0x10D50, 0x10D65, 0x20},
                                                   {0x16EA0, 0x16EB8, 0x1B}});

char32_t lower(char32_t code) {
  for (const Cased& cased : kNewerCased) {
    if (code >= cased.first && code <= cased.last && (code - cased.first) % cased.step == 0)
      return static_cast<char32_t>(static_cast<int32_t>(code) + cased.to_lower);
  }
  return static_cast<char32_t>(u_tolower(static_cast<UChar32>(code)));
}

/// Nonspacing marks of Unicode 8: some characters have changed their class since.
bool is_nonspacing_mark(char32_t code) {
  if (code == 0x1734) return true;
  if (code == 0x1885 || code == 0x1886 || code == 0xA9BD || code == 0x111C9) return false;
  return (category(code, kBertVersion) & U_GC_MN_MASK) != 0;
}

const icu::Normalizer2& canonical() {
  static const icu::Normalizer2* const nfd = [] {
    UErrorCode status = U_ZERO_ERROR;
    const icu::Normalizer2* made = icu::Normalizer2::getNFDInstance(status);
    if (U_FAILURE(status)) fail("io.Tokenizer", "ICU has no data of decompositions: ", u_errorName(status));
    return made;
  }();
  return *nfd;
}

uint8_t combining_class(char32_t code) {
  return newer_than(code, kDecompositionVersion) ? uint8_t{0}
                                                 : u_getCombiningClass(static_cast<UChar32>(code));
}

bool in(char32_t code, char32_t first, char32_t last) {
  return code >= first && code <= last;
}

/// What ICU counts with.
int32_t icu_size(const char* where, std::string_view text) {
  if (text.size() > std::numeric_limits<int32_t>::max())
    fail(where, "expected a text below 2 GB, got ", text.size(), " bytes");
  return static_cast<int32_t>(text.size());
}

}  // namespace

Characters characters_of(const char* where, std::string_view text) {
  const int32_t size = icu_size(where, text);
  Characters characters;
  characters.reserve(text.size());
  for (int32_t at = 0; at < size;) {
    const int32_t begin = at;
    UChar32 code = 0;
    U8_NEXT(text.data(), at, size, code);
    if (code < 0) fail(where, "expected a text in UTF-8, got another one at byte ", begin);
    characters.push_back(
        {static_cast<char32_t>(code), static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
  }
  return characters;
}

void append_utf8(std::string& text, char32_t code) {
  char bytes[U8_MAX_LENGTH];
  int32_t length = 0;
  U8_APPEND_UNSAFE(bytes, length, static_cast<UChar32>(code));
  text.append(bytes, static_cast<size_t>(length));
}

std::string utf8_of(std::span<const Character> characters) {
  std::string text;
  for (const Character& character : characters) append_utf8(text, character.code);
  return text;
}

std::string valid_utf8(std::string_view bytes) {
  const int32_t size = icu_size("io.Tokenizer", bytes);
  std::string text;
  for (int32_t at = 0; at < size;) {
    UChar32 code = 0;
    U8_NEXT_OR_FFFD(bytes.data(), at, size, code);
    append_utf8(text, static_cast<char32_t>(code));
  }
  return text;
}

bool is_space(char32_t code) {
  return u_isUWhiteSpace(static_cast<UChar32>(code)) != 0;
}

bool is_word_character(char32_t code) {
  const auto c = static_cast<UChar32>(code);
  constexpr uint32_t kMask = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_isUAlphabetic(c) || (U_MASK(u_charType(c)) & kMask) != 0 ||
         u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) || newer_class(code) != LetterClass::other ||
         is_newer_mark(code);
}

LetterClass letter_class(char32_t code) {
  const uint32_t mask = U_MASK(u_charType(static_cast<UChar32>(code)));
  if (mask & U_GC_L_MASK) return LetterClass::letter;
  if (mask & U_GC_N_MASK) return LetterClass::number;
  return is_space(code) ? LetterClass::space : newer_class(code);
}

bool is_bert_control(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  return (category(code, kBertVersion) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) != 0;
}

bool is_bert_punctuation(char32_t code) {
  if (code < 0x80) return code > ' ' && code < 0x7F && !u_isalnum(static_cast<UChar32>(code));
  if (code == 0x166D || code == 0x111C9) return true;  // of other classes since
  return (category(code, kBertVersion) & U_GC_P_MASK) != 0;
}

bool is_ideograph(char32_t code) {
  // The gap before U+2B920 is the one of the original.
  return in(code, 0x4E00, 0x9FFF) || in(code, 0x3400, 0x4DBF) || in(code, 0x20000, 0x2A6DF) ||
         in(code, 0x2A700, 0x2B73F) || in(code, 0x2B740, 0x2B81F) || in(code, 0x2B920, 0x2CEAF) ||
         in(code, 0xF900, 0xFAFF) || in(code, 0x2F800, 0x2FA1F);
}

void append_lower(Characters& out, const Character& character) {
  if (character.code == 0x130) {  // the only one that becomes two
    out.push_back({'i', character.begin, character.end});
    out.push_back({0x307, character.begin, character.end});
    return;
  }
  out.push_back({lower(character.code), character.begin, character.end});
}

Characters without_accents(std::span<const Character> characters) {
  Characters decomposed;
  decomposed.reserve(characters.size());
  icu::UnicodeString parts;
  for (const Character& character : characters) {
    const bool whole = character.code < 0x80 || newer_than(character.code, kDecompositionVersion) ||
                       !canonical().getDecomposition(static_cast<UChar32>(character.code), parts);
    if (whole) {
      decomposed.push_back(character);
      continue;
    }
    for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1))
      decomposed.push_back({static_cast<char32_t>(parts.char32At(i)), character.begin, character.end});
  }
  // Marks of one base stand in the order of their classes.
  const auto order = [](const Character& a, const Character& b) {
    return combining_class(a.code) < combining_class(b.code);
  };
  for (auto at = decomposed.begin(); at != decomposed.end();) {
    const auto is_base = [](const Character& c) { return c.code < 0x300 || combining_class(c.code) == 0; };
    const auto marks = std::find_if_not(at, decomposed.end(), is_base);
    at = std::find_if(marks, decomposed.end(), is_base);
    std::stable_sort(marks, at, order);
  }
  std::erase_if(decomposed, [](const Character& c) { return is_nonspacing_mark(c.code); });
  return decomposed;
}

}  // namespace ulp::io
