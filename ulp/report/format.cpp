#include "ulp/report/format.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace ulp::report {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

// Decodes one code point and advances `at`; anything malformed (overlong, surrogate, truncated) costs one
// byte.
char32_t next_code_point(std::string_view text, size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  if (lead < 0x80) return lead;
  const int extra = lead >= 0xF0 && lead < 0xF5   ? 3
                    : lead >= 0xE0 && lead < 0xF0 ? 2
                    : lead >= 0xC2 && lead < 0xE0 ? 1
                                                  : 0;
  if (extra == 0 || at + extra > text.size()) return kReplacement;
  char32_t code = lead & (0x3F >> extra);
  for (int i = 0; i < extra; ++i) {
    const auto next = static_cast<unsigned char>(text[at + i]);
    if ((next & 0xC0) != 0x80) return kReplacement;
    code = code << 6 | (next & 0x3F);
  }
  const char32_t smallest = extra == 1 ? 0x80 : extra == 2 ? 0x800 : 0x10000;
  if (code < smallest || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return kReplacement;
  at += extra;
  return code;
}

struct CodePoints {
  char32_t first, last;
};

bool is_in(char32_t code, const CodePoints* begin, const CodePoints* end) {
  return std::any_of(begin, end, [code](CodePoints r) { return code >= r.first && code <= r.last; });
}

int code_point_width(char32_t code) {
  static constexpr CodePoints kZero[] = {
      {0x0300, 0x036F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}};
  static constexpr CodePoints kWide[] = {{0x1100, 0x115F},   {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},
                                         {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                                         {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF},
                                         {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
  if (code < 0x300) return 1;
  if (is_in(code, std::begin(kZero), std::end(kZero))) return 0;
  return is_in(code, std::begin(kWide), std::end(kWide)) ? 2 : 1;
}

bool is_control(char32_t code) {
  // Bidirectional overrides are controls too: they can make a line read as something it is not.
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x202A && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0x2028 || code == 0x2029;
}

/// Valid UTF-8 with what `written` makes of control characters; invalid bytes become U+FFFD.
template <typename Written>
std::string replace_controls(std::string_view text, const Written& written) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t code = next_code_point(text, at);
    if (code == kReplacement) {
      out += "\xEF\xBF\xBD";
    } else if (is_control(code)) {
      out += written(code);
    } else {
      out.append(text.substr(start, at - start));
    }
  }
  return out;
}

std::string with_commas(const std::string& plain) {
  const size_t point = std::min(plain.find('.'), plain.size());
  std::string out;
  for (size_t i = 0; i < plain.size(); ++i) {
    const bool between_digits = i > 0 && plain[i - 1] != '-' && i < point;
    if (between_digits && (point - i) % 3 == 0) out += ',';
    out += plain[i];
  }
  return out;
}

}  // namespace

std::string format_number(double value, int decimals) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::fabs(value);
  if (size != 0 && (size >= 1e15 || (decimals < 0 && size < 1e-4))) {
    char small[32];
    std::snprintf(small, sizeof small, "%.3g", value);
    return small;
  }
  const bool automatic = decimals < 0;
  if (automatic)
    decimals = size == 0 ? 0 : std::clamp(3 - static_cast<int>(std::floor(std::log10(size))), 0, 8);
  char digits[64];
  std::snprintf(digits, sizeof digits, "%.*f", std::min(decimals, 20), value);
  std::string out = digits;
  if (automatic && out.find('.') != std::string::npos) {
    out.erase(out.find_last_not_of('0') + 1);
    if (out.back() == '.') out.pop_back();
  }
  if (out.find_first_not_of("-0.") == std::string::npos && out[0] == '-') out.erase(0, 1);
  return with_commas(out);
}

std::string format_scale(double value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5 ? "2^" + std::to_string(exponent - 1) : format_number(value);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e8) return "-:--";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  char out[48];
  if (total >= 3600) {
    std::snprintf(out, sizeof out, "%d:%02d:%02d", static_cast<int>(total / 3600),
                  static_cast<int>(total / 60 % 60), static_cast<int>(total % 60));
  } else {
    std::snprintf(out, sizeof out, "%d:%02d", static_cast<int>(total / 60), static_cast<int>(total % 60));
  }
  return out;
}

std::string format_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (std::fabs(bytes) >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  const double size = std::fabs(bytes);
  const int decimals = unit == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return format_number(bytes, decimals) + " " + kUnits[unit];
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

std::string clean_line(std::string_view text) {
  return replace_controls(text, [](char32_t) { return std::string(" "); });
}

std::string escape_controls(std::string_view text) {
  return replace_controls(text, [](char32_t code) -> std::string {
    if (code == '\n') return "\\n";
    if (code == '\r') return "\\r";
    if (code == '\t') return "\\t";
    char escaped[16];
    std::snprintf(escaped, sizeof escaped, code < 0x100 ? "\\x%02x" : "\\u%04x", static_cast<unsigned>(code));
    return escaped;
  });
}

int display_width(std::string_view text) {
  int width = 0;
  for (size_t at = 0; at < text.size();) width += code_point_width(next_code_point(text, at));
  return width;
}

std::string truncate_to_width(std::string_view text, int columns, bool unicode) {
  if (display_width(text) <= columns) return std::string(text);
  if (columns <= 0) return {};
  size_t at = 0;
  for (int width = 0; at < text.size();) {
    size_t next = at;
    width += code_point_width(next_code_point(text, next));
    if (width > columns - 1) break;
    at = next;
  }
  return std::string(text.substr(0, at)) + (unicode ? "…" : ".");
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string lower;
    for (const char* c = value; *c != '\0'; ++c) lower += static_cast<char>(*c | 0x20);
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace ulp::report
