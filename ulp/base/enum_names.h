// The words of enums: one list an enum, which JSON, flags, messages and to_string() read.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/base/export.h"

namespace ulp {

/// An enumerator as text; `help` explains it in a few words where the text does not.
template <typename E>
struct Word {
  E value;
  const char* text;
  const char* help = "";
};

/// The words of an enum: specialise with `static constexpr std::array<Word<E>, n> list`.
template <typename E>
struct EnumNames;

template <typename E>
concept HasWords = requires {
  EnumNames<E>::list.size();
};

/// The word of an enumerator; "unknown" for a value outside the list.
template <HasWords E>
constexpr const char* enum_name(E value) {
  for (const Word<E>& word : EnumNames<E>::list) {
    if (word.value == value) return word.text;
  }
  return "unknown";
}

/// The enumerator of a word, or nothing.
template <HasWords E>
constexpr std::optional<E> from_word(std::string_view text) {
  for (const Word<E>& word : EnumNames<E>::list) {
    if (text == word.text) return word.value;
  }
  return std::nullopt;
}

/// "a, b or c".
ULP_API std::string one_of(std::span<const char* const> words);

/// Every word of an enum, in order.
template <HasWords E>
constexpr auto enum_names() {
  std::array<const char*, EnumNames<E>::list.size()> texts{};
  for (size_t i = 0; i < texts.size(); ++i) texts[i] = EnumNames<E>::list[i].text;
  return texts;
}

/// The meaning of each word of an enum, in order.
template <HasWords E>
constexpr auto word_help_of() {
  std::array<const char*, EnumNames<E>::list.size()> texts{};
  for (size_t i = 0; i < texts.size(); ++i) texts[i] = EnumNames<E>::list[i].help;
  return texts;
}

/// The enumerator of a word. Throws Error `[where] expected what a, b or c, got 'd'`.
template <HasWords E>
E require_word(const char* where, const char* what, std::string_view text) {
  if (const std::optional<E> value = from_word<E>(text)) return *value;
  fail(where, "expected ", what, ' ', one_of(enum_names<E>()), ", got '", text, "'");
}

}  // namespace ulp
