// Flags of described fields (ulp/base/fields.h): from the list of an options struct come its flags with their
// checks, defaults and help.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "ulp/base/fields.h"

namespace ulp::cli {

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
