// GGUF files as bytes: metadata and where each tensor lies. Internal to the room.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/formats/ggml_block.h"

namespace ulp::exchange::gguf {

inline constexpr int64_t kAlignment = 32;  ///< of tensors, unless "general.alignment" says another
inline constexpr size_t kMostDimensions = 4;

/// The types of metadata values, as files number them.
enum class ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };
inline constexpr uint32_t kValueTypes = 13;

struct FileTensor {
  std::string name;
  const formats::GgmlType* type = nullptr;  ///< null: one that is not in the table
  uint32_t type_code = 0;
  std::vector<int64_t> shape;  ///< row-major; files have the fastest dimension first
  std::string_view bytes;      ///< of the file; empty where the type is not known
};

struct File {
  nlohmann::json metadata;
  std::vector<FileTensor> tensors;
};

/// Versions 2 and 3. Names are UTF-8 without control characters. Throws FileError naming `source` and the place (the byte, or the tensor) for
/// anything that is damaged or beyond the file's own bytes, and for tensors that have more bytes than there are, since they overlap.
File read(std::string_view bytes, const std::string& source);

}  // namespace ulp::exchange::gguf
