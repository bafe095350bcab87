// The metadata of a compressed file: version, checksum, aliases. Internal.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "ulp/base/safetensors.h"

namespace ulp::prune {

inline constexpr const char* kStampKey = "ulp.compressed";
inline constexpr int kFileVersion = 1;
inline constexpr const char* kCodedType = "U8";  ///< the dtype of entries that are coded tensors

struct FileStamp {
  std::map<std::string, std::string> aliases;  ///< name -> the name of the same tensor
  uint32_t checksum = 0;
  std::string to_json() const;
  /// Throws CodesProblem.
  static FileStamp from_json(const std::string& text);
};

/// CRC-32 (that of zlib) of all that a file says, but for the stamp itself, in the order of names.
uint32_t checksum_of(std::span<const TensorEntry> entries, const std::map<std::string, std::string>& metadata,
                     const std::map<std::string, std::string>& aliases);

}  // namespace ulp::prune
