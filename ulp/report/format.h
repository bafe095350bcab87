// Numbers, durations and text as people read them, in terminals and on pages.
#pragma once

#include <string>
#include <string_view>

#include "ulp/base/export.h"

namespace ulp::report {

/// `value` with thousands separated by commas. decimals < 0 chooses four significant digits and drops
/// trailing zeros: 0.4123, 12.5, 1,235. Not-a-number and infinities read "nan", "inf", "-inf".
ULP_API std::string format_number(double value, int decimals = -1);

/// "2^16" for a power of two, else format_number(value).
ULP_API std::string format_scale(double value);

/// "0:07", "12:03", "1:02:03"; "-:--" when not finite or negative.
ULP_API std::string format_duration(double seconds);

/// Binary units, three significant digits: "812 B", "1.19 MiB".
ULP_API std::string format_bytes(double bytes);

/// `text` as valid UTF-8 of one line: invalid bytes become U+FFFD, control characters (terminal escapes too)
/// a space.
ULP_API std::string clean_line(std::string_view text);

/// Writes control characters as C does: "\\n", "\\x1b", "\\u202e". For names from files.
ULP_API std::string escape_controls(std::string_view text);

/// `text` up to its first line feed. LibTorch's messages carry a stack trace behind it.
ULP_API std::string first_line(std::string_view text);

/// Terminal columns that valid UTF-8 takes: combining marks 0, East Asian wide and emoji 2.
ULP_API int display_width(std::string_view text);

/// The longest start of `text` that fits in `columns`, ending in "…" (or "." when `unicode` is false) if cut.
ULP_API std::string truncate_to_width(std::string_view text, int columns, bool unicode = true);

/// Whether the user's locale (LC_ALL, LC_CTYPE, LANG) shows UTF-8.
ULP_API bool locale_is_utf8();

}  // namespace ulp::report
