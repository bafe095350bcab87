// Flags of described fields (ulp/base/fields.h): from the list of an options struct come its flags with their
// checks, defaults and help.
#pragma once

#include <CLI/CLI.hpp>
#include <cerrno>
#include <functional>
#include <string>
#include <type_traits>

#include "ulp/base/fields.h"

namespace ulp::cli {

/// The flag of a field: "--max-steps" of max_steps, unless the description names another; empty for none.
std::string flag_of(const FieldInfo& info);

/// Reads the text behind the flag of a field of numbers into `value`. Returns what was expected where it is no
/// such number, outside the field's limits or too large for its type ("a whole number >= 0"), else nothing.
template <typename Number>
std::string read_number(const FieldInfo& info, const std::string& text, Number& value) {
  const auto expected = [](std::string kind, const std::string& limits) {
    return limits.empty() ? kind : kind + ' ' + limits;
  };
  const std::string kind = std::is_integral_v<Number> ? "a whole number" : "a number";
  if (std::is_unsigned_v<Number> && text.starts_with('-')) return "a whole number >= 0";
  Number read = 0;
  errno = 0;  // CLI11 takes what is too large for the largest number
  const bool is_number = CLI::detail::lexical_cast(text, read);
  const bool fits = errno != ERANGE;
  const auto wide = static_cast<double>(read);
  if (std::is_unsigned_v<Number> && !fits && !info.has_limits()) return "a whole number below 2^64";
  if (!is_number || !fits || !info.allows(wide)) return expected(kind, info.limits());
  if (!info.holds(wide)) return expected(kind, info.type_limits());
  value = read;
  return {};
}

/// The check of a flag whose numbers have these limits; `type` is shown in the help.
template <typename Number>
CLI::Validator number_check(const FieldInfo& info, const std::string& type = "") {
  const auto check = [info](const std::string& text) {
    Number read = 0;
    const std::string expected = read_number(info, text, read);
    return expected.empty() ? expected : "expected " + expected + ", got " + text;
  };
  return {check, type};
}

/// Shows the fields of one struct to a visitor.
using VisitFields = std::function<void(FieldVisitor&)>;

/// Adds a flag for each number, word, text and switch of the fields. A flag is named as its field
/// ("--max-steps" of max_steps) unless the description names it; groups, lists and fields with an empty flag
/// have none. Values are set while the command line is parsed, so that what `fields` visits must live until
/// then; a value that is not allowed is a CLI::ValidationError.
void add_field_flags(CLI::App& command, const VisitFields& fields);

template <HasFields Options>
void add_field_flags(CLI::App& command, Options& options) {
  add_field_flags(command, [&options](FieldVisitor& visitor) { options.visit_fields(visitor); });
}

/// The sentence of a conflict with the flags of its fields: "--clip needs --masters beside --precision O3".
std::string in_flags(const FieldConflict& conflict, const VisitFields& fields);

template <HasFields Options>
std::string in_flags(const FieldConflict& conflict, const Options& options) {
  return in_flags(conflict, [&options](FieldVisitor& visitor) {
    const_cast<Options&>(options).visit_fields(visitor);  // which only reads
  });
}

}  // namespace ulp::cli
