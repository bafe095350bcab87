#include "ulp/base/byte_size.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <span>

namespace ulp {

namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

/// The largest binary ones first.
constexpr std::array<Unit, 10> kUnits = {{{"TiB", 0x1p40},
                                          {"GiB", 0x1p30},
                                          {"MiB", 0x1p20},
                                          {"KiB", 0x1p10},
                                          {"TB", 1e12},
                                          {"GB", 1e9},
                                          {"MB", 1e6},
                                          {"KB", 1e3},
                                          {"B", 1},
                                          {"", 1}}};
constexpr size_t kBinary = 4;

bool equal_letters(std::string_view one, std::string_view other) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::ranges::equal(one, other, {}, lower, lower);
}

}  // namespace

std::string ByteSize::text() const {
  for (const Unit& unit : std::span(kUnits).first(kBinary)) {
    const auto size = static_cast<int64_t>(unit.bytes);
    if (bytes > 0 && bytes % size == 0) return std::to_string(bytes / size) + std::string(unit.name);
  }
  return std::to_string(bytes);
}

std::optional<ByteSize> ByteSize::from_text(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  std::string_view name = text.substr(static_cast<size_t>(end - text.data()));
  if (name.starts_with(' ')) name.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (!equal_letters(name, unit.name)) continue;
    const double bytes = std::floor(number * unit.bytes);
    if (!(bytes >= 1 && bytes < 0x1p62)) return std::nullopt;
    return ByteSize{static_cast<int64_t>(bytes)};
  }
  return std::nullopt;
}

}  // namespace ulp
