// The one description of the fields of an options struct. A struct lists its fields once, in a member function
// `void visit_fields(FieldVisitor&)`; JSON, validation, command-line flags and help are visitors of that list.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"

namespace ulp {

/// What is said of a field beside its value. Limits are for numbers.
struct FieldInfo {
  const char* name;
  const char* help = "";  ///< one sentence without a full stop; the default is added by those who print it
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  ///< min itself is not allowed
  bool below_max = false;  ///< max itself is not allowed
  bool keep_empty = true;  ///< false: an empty text is not written to JSON

  bool has_limits() const {
    return min > -std::numeric_limits<double>::infinity() || max < std::numeric_limits<double>::infinity();
  }
  /// False for NaN, too, where there are limits; without limits every number is allowed.
  ULP_API bool allows(double value) const;
  /// "> 0", ">= 1", "in [0, 1)"; empty without limits.
  ULP_API std::string limits() const;
};

/// The words of an enum: specialise with `static constexpr std::array<Word<E>, n> list`. JSON, flags, messages
/// and to_string() read it.
template <typename E>
struct Word {
  E value;
  const char* text;
  const char* help = "";
};
template <typename E>
struct Words;

template <typename E>
concept HasWords = requires {
  Words<E>::list.size();
};

/// The word of an enumerator; "unknown" for a value outside the list.
template <HasWords E>
constexpr const char* word_of(E value) {
  for (const Word<E>& word : Words<E>::list) {
    if (word.value == value) return word.text;
  }
  return "unknown";
}

/// The enumerator of a word, or nothing.
template <HasWords E>
std::optional<E> from_word(const std::string& text) {
  for (const Word<E>& word : Words<E>::list) {
    if (text == word.text) return word.value;
  }
  return std::nullopt;
}

/// "a, b or c".
ULP_API std::string one_of(std::span<const char* const> words);

/// Every word of an enum, in order.
template <HasWords E>
constexpr auto words_of() {
  std::array<const char*, Words<E>::list.size()> texts{};
  for (size_t i = 0; i < texts.size(); ++i) texts[i] = Words<E>::list[i].text;
  return texts;
}

/// A field that holds one word of several.
struct ChoiceField {
  std::span<const char* const> words;
  std::span<const char* const> help;  ///< one a word
  size_t index;                       ///< may be changed by the visitor
};

/// A field that may be absent.
struct OptionalField {
  bool present;
  FunctionRef<void(bool present)> set;  ///< makes a default value, or takes it away
  /// Visits the value under the same info; it must be present.
  FunctionRef<void(class FieldVisitor&)> value;
};

/// A field that is a struct of fields.
struct GroupField {
  FunctionRef<void(class FieldVisitor&)> fields;
};

/// A field that is a list of structs.
struct ListField {
  size_t size;
  FunctionRef<void(size_t)> resize;  ///< new elements are copies of the list's prototype
  FunctionRef<void(size_t index, class FieldVisitor&)> element;
};

/// A field with a JSON form of its own.
struct CustomField {
  FunctionRef<std::string()> write;                 ///< as JSON text
  FunctionRef<bool(const std::string& json)> read;  ///< false: not such a value, which stays as it was
  const char* expected;                             ///< what read() takes, for messages
};

/// Is told every field of a struct, in order, by operator(). Readers change the values; writers must not.
class ULP_API FieldVisitor {
 public:
  virtual ~FieldVisitor();

  template <typename T>
  void operator()(const FieldInfo& info, T& value) {
    if constexpr (HasWords<T>) {
      choice(info, value);
    } else if constexpr (requires { value.visit_fields(*this); }) {
      on_group(info, {.fields = [&](FieldVisitor& inner) { value.visit_fields(inner); }});
    } else if constexpr (std::is_same_v<T, float>) {
      double wide = static_cast<double>(value);
      on(within<float>(info), wide);
      value = static_cast<float>(wide);
    } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) < 8) {
      int64_t wide = value;
      on(within<T>(info), wide);
      value = static_cast<T>(wide);
    } else {
      on(info, value);
    }
  }
  template <typename T>
  void operator()(const FieldInfo& info, std::optional<T>& value) {
    on_optional(info, {.present = value.has_value(),
                       .set =
                           [&](bool present) {
                             if (!present) return value.reset();
                             if (!value) value.emplace();
                           },
                       .value = [&](FieldVisitor& inner) { inner(info, *value); }});
  }
  /// A list of structs; elements that a reader makes start as `prototype`.
  template <typename T>
  void operator()(const FieldInfo& info, std::vector<T>& values, const T& prototype) {
    on_list(info, {.size = values.size(),
                   .resize = [&](size_t size) { values.assign(size, prototype); },
                   .element = [&](size_t index, FieldVisitor& inner) { values[index].visit_fields(inner); }});
  }
  void operator()(const FieldInfo& info, const CustomField& field) { on_custom(info, field); }

 protected:
  virtual void on(const FieldInfo& info, bool& value) = 0;
  virtual void on(const FieldInfo& info, int64_t& value) = 0;
  virtual void on(const FieldInfo& info, uint64_t& value) = 0;
  virtual void on(const FieldInfo& info, double& value) = 0;
  virtual void on(const FieldInfo& info, std::string& value) = 0;
  virtual void on(const FieldInfo& info, std::vector<std::string>& value) = 0;
  virtual void on_choice(const FieldInfo& info, ChoiceField& field) = 0;
  virtual void on_group(const FieldInfo& info, const GroupField& field) = 0;
  virtual void on_optional(const FieldInfo& info, const OptionalField& field) = 0;
  virtual void on_list(const FieldInfo& info, const ListField& field) = 0;
  virtual void on_custom(const FieldInfo& info, const CustomField& field) = 0;

 private:
  template <typename E>
  void choice(const FieldInfo& info, E& value) {
    static constexpr auto texts = words_of<E>();
    static constexpr auto help = [] {
      std::array<const char*, texts.size()> all{};
      for (size_t i = 0; i < all.size(); ++i) all[i] = Words<E>::list[i].help;
      return all;
    }();
    size_t index = 0;
    while (index < texts.size() && Words<E>::list[index].value != value) ++index;
    ChoiceField field{texts, help, index};
    on_choice(info, field);
    if (field.index < texts.size()) value = Words<E>::list[field.index].value;
  }
  /// The limits of a field that is kept in a narrower type.
  template <typename T>
  static FieldInfo within(FieldInfo info) {
    info.min = std::max(info.min, static_cast<double>(std::numeric_limits<T>::lowest()));
    info.max = std::min(info.max, static_cast<double>(std::numeric_limits<T>::max()));
    return info;
  }
};

/// Throws Error `[where] expected path.name in [a, b], got c` for the first number outside its limits.
ULP_API void check_limits(const char* where, const std::string& path,
                          FunctionRef<void(FieldVisitor&)> fields);

/// The same for a struct.
template <typename Options>
void check_limits(const char* where, const Options& options, const std::string& path = {}) {
  check_limits(where, path,
               [&](FieldVisitor& visitor) { const_cast<Options&>(options).visit_fields(visitor); });
}

}  // namespace ulp
