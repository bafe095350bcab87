// The tokens of a model and their numbers. Internal to the room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ulp::io {

/// So that texts are looked up without copies.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

using TokenIds = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;

inline std::optional<int64_t> find_id(const TokenIds& ids, std::string_view token) {
  const auto found = ids.find(token);
  return found == ids.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace ulp::io
