// The JSON header of a safetensors file: parsing with every rule of the format, and writing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ulp::detail {

/// The format's own limit on the header.
inline constexpr uint64_t kSafetensorsMaxHeader = 100'000'000;

struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // relative to the end of the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<HeaderEntry> entries;  // sorted by their bytes
  std::map<std::string, std::string> metadata;
};

/// Bytes that a tensor of this dtype and shape takes; throws std::string (the reason, without a place) when
/// the dtype is unknown, a size is negative, the product overflows, or a sub-byte dtype does not end on a
/// byte.
uint64_t safetensors_bytes(const std::string& dtype, const std::vector<int64_t>& shape);

/// Parses and checks a whole header against the bytes that follow it. Throws std::string with the reason: bad
/// JSON, a duplicate name, a missing or unknown field, offsets that overlap, leave a hole, or miss the file's
/// end.
SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes);

}  // namespace ulp::detail
