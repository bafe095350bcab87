// The one description of the fields of an options struct. A struct lists its fields once, in a member
// function `void visit_fields(FieldVisitor&)`; JSON, validation, command-line flags and help are visitors of
// that list.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/base/parallel.h"

namespace ulp {

class FieldVisitor;
class FieldSelection;

/// The description of a field beside its value. Limits are for numbers; they are doubles, so that whole
/// numbers beyond 2^53 are compared rounded.
struct FieldInfo {
  const char* name;
  /// One sentence without a full stop; the default is added by those who print it. Other fields stand in
  /// braces (FieldConflict).
  const char* help = "";
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  ///< min itself is not allowed
  bool below_max = false;  ///< max itself is not allowed, even if it is infinity
  bool keep_empty =
      true;  ///< false: an empty text is not written to JSON; for fields that are empty by default
  /// The JSON of an absent value: "null", or a word ("none"). nullptr: nothing; a value that JSON leaves
  /// out stays as it was. "": nothing; a value that JSON leaves out is absent.
  const char* absent = nullptr;
  const char* unset = "";      ///< what an absent or empty value stands for; help says it as the default
  const char* flag = nullptr;  ///< the command-line flag without dashes; nullptr: as the name; "": none
  /// The range of the field's own type. FieldVisitor sets it.
  double type_min = -std::numeric_limits<double>::infinity();
  double type_max = std::numeric_limits<double>::infinity();

  bool has_limits() const {
    return min > -std::numeric_limits<double>::infinity() || max < std::numeric_limits<double>::infinity();
  }
  /// False for NaN, too, where there are limits; without limits every number is allowed.
  ULP_API bool allows(double value) const;
  /// False for what the field's own type cannot hold.
  bool holds(double value) const { return !(value < type_min || value > type_max); }
  /// "> 0", ">= 1", "in [0, 1)"; empty without limits.
  ULP_API std::string limits() const;
  /// Describes the range of the field's own type as limits() does.
  ULP_API std::string type_limits() const;
};

/// A field that holds one word of several.
struct ChoiceField {
  std::span<const char* const> words;
  std::span<const char* const> help;  ///< one a word
  size_t index;                       ///< may be changed by the visitor
};

/// A type whose values are the entries of a table, chosen by name.
template <typename T>
concept TableChoice = requires(const T value) {
  { T::choices() } -> std::convertible_to<std::span<const char* const>>;
  { T::choice_help() } -> std::convertible_to<std::span<const char* const>>;
  { value.index() } -> std::convertible_to<size_t>;
  { T::at(size_t{}) } -> std::convertible_to<T>;
};

/// A field whose value has a text form ("static:8").
struct TextField {
  std::string text;
  FunctionRef<bool(const std::string& text)> set;  ///< false: not such a text, and the value stays as it was
  const char* expected;                            ///< what set() takes, for messages
};

/// A type that TextField is made of.
template <typename T>
concept HasTextForm = requires(const T value, const std::string& text) {
  { value.text() } -> std::convertible_to<std::string>;
  { T::from_text(text) } -> std::same_as<std::optional<T>>;
  { T::kExpected } -> std::convertible_to<const char*>;
};

/// A field that may be absent.
struct OptionalField {
  bool present;
  FunctionRef<void(bool present)> set;  ///< makes a default value, or takes it away
  /// Visits the value under the same info; it must be present.
  FunctionRef<void(FieldVisitor&)> value;
};

/// A field that is a struct of fields.
struct GroupField {
  FunctionRef<void(FieldVisitor&)> fields;
};

/// A field that is a list of structs.
struct ListField {
  size_t size;
  FunctionRef<void(size_t)> resize;  ///< every element becomes a copy of the list's prototype
  FunctionRef<void(size_t index, FieldVisitor&)> element;
};

/// A field with a JSON form of its own.
struct CustomField {
  FunctionRef<std::string()> write;                 ///< as JSON text
  FunctionRef<bool(const std::string& json)> read;  ///< false: not such a value, which stays as it was
  const char* expected;                             ///< what read() takes, for messages
};

/// Is told every field of a struct, in order, by operator(). Readers change the values. Writers must not, and
/// then nothing is written: they may visit constants, and one struct from several threads.
class ULP_API FieldVisitor {
 public:
  virtual ~FieldVisitor();

  template <typename T>
  void operator()(const FieldInfo& info, T& value) {
    if constexpr (HasWords<T>) {
      choice(info, value);
    } else if constexpr (TableChoice<T>) {
      ChoiceField field{T::choices(), T::choice_help(), value.index()};
      on_choice(info, field);
      if (field.index != value.index()) value = T::at(field.index);
    } else if constexpr (HasTextForm<T>) {
      text(info, value);
    } else if constexpr (requires { value.visit_fields(*this); }) {
      on_group(info, {.fields = [&](FieldVisitor& inner) { value.visit_fields(inner); }});
    } else if constexpr (std::is_same_v<T, float>) {
      const auto before = static_cast<double>(value);
      double wide = before;
      on(within<float>(info), wide);
      if (std::bit_cast<uint64_t>(wide) != std::bit_cast<uint64_t>(before)) value = static_cast<float>(wide);
    } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) < 8) {
      int64_t wide = value;
      on(within<T>(info), wide);
      if (wide != value) value = static_cast<T>(wide);
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
  /// Goes to on(string) unless overridden; a text that is not taken is an error.
  virtual void on_text(const FieldInfo& info, const TextField& field);

 private:
  friend class FieldSelection;

  template <typename E>
  void choice(const FieldInfo& info, E& value) {
    static constexpr auto texts = enum_names<E>();
    static constexpr auto help = word_help_of<E>();
    size_t before = 0;
    while (before < texts.size() && EnumNames<E>::list[before].value != value) ++before;
    ChoiceField field{texts, help, before};
    on_choice(info, field);
    if (field.index != before && field.index < texts.size()) value = EnumNames<E>::list[field.index].value;
  }
  template <typename T>
  void text(const FieldInfo& info, T& value) {
    const auto set = [&](const std::string& text) {
      const std::optional<T> read = T::from_text(text);
      if (read) value = *read;
      return read.has_value();
    };
    on_text(info, {.text = value.text(), .set = set, .expected = T::kExpected});
  }
  /// The info of a field that is kept in a narrower type.
  template <typename T>
  static FieldInfo within(FieldInfo info) {
    info.type_min = static_cast<double>(std::numeric_limits<T>::lowest());
    info.type_max = static_cast<double>(std::numeric_limits<T>::max());
    return info;
  }
};

/// A struct that lists its fields.
template <typename T>
concept HasFields = requires(T& value, FieldVisitor& visitor) {
  value.visit_fields(visitor);
};

/// Shows the visitor those of the fields that are named.
ULP_API void visit_some(FieldVisitor& visitor, std::span<const char* const> names,
                        FunctionRef<void(FieldVisitor&)> fields);

/// "expected path.name in [a, b], got c" for the first number outside its limits, or the first choice that is
/// no word of its list; empty where there is none.
ULP_API std::string limit_problem(const std::string& path, FunctionRef<void(FieldVisitor&)> fields);

/// Does this for a struct with described fields.
template <HasFields Options>
std::string limit_problem(const Options& options, const std::string& path = {}) {
  return limit_problem(path,
                       [&](FieldVisitor& visitor) { const_cast<Options&>(options).visit_fields(visitor); });
}

/// Throws Error `[where] expected path.name in [a, b], got c` where limit_problem() finds one.
ULP_API void check_limits(const char* where, const std::string& path,
                          FunctionRef<void(FieldVisitor&)> fields);

/// Does this for a struct with described fields.
template <HasFields Options>
void check_limits(const char* where, const Options& options, const std::string& path = {}) {
  check_limits(where, path,
               [&](FieldVisitor& visitor) { const_cast<Options&>(options).visit_fields(visitor); });
}

/// Words a field in a sentence; `value` is empty where the sentence tells none.
using FieldSpelling = FunctionRef<std::string(const std::string& name, const std::string& value)>;

/// A sentence whose fields stand in braces, alone or with a value ("{masters=split} needs ..."), with each
/// field as `spell` words it.
ULP_API std::string spell_fields(const std::string& sentence, FieldSpelling spell);

/// Why some fields of a struct do not go together, as a sentence for spell_fields(). The library names
/// fields, a command line its flags.
struct ULP_API FieldConflict {
  std::string sentence;
  /// As the library says it: masters 'split', clip.
  std::string text() const;
};

}  // namespace ulp
