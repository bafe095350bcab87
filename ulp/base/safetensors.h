// The safetensors container: named tensors and string metadata in one file, read by memory mapping.
//
// Layout: 8 bytes little-endian header length N, N bytes of JSON, then the tensors' bytes. The JSON maps a name to
// {"dtype", "shape", "data_offsets": [begin, end]} relative to the end of the header; "__metadata__" maps strings to
// strings. Contract of the format (https://github.com/huggingface/safetensors): header at most 100,000,000 bytes and
// starts with '{', names unique, offsets in bounds, without holes or overlaps, equal to the shape's bytes, and the
// data section has no bytes that belong to no tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp {

/// One tensor's entry: dtype is the format's own word ("F32", "BF16", "F16", "F64", "I8", "U8", "I16", "I32", "I64",
/// "BOOL", "F8_E4M3", "F8_E5M2").
struct TensorEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Bytes of one element of a safetensors dtype; 0 for an unknown word.
ULP_API size_t safetensors_element_size(const std::string& dtype);

/// A file opened for reading. The spans of the entries point into the mapping and live as long as this object.
class ULP_API SafetensorsFile {
 public:
  /// Maps and checks the whole header. Throws FileError for a file that is missing, unreadable, truncated or hostile.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  /// In the order of their bytes in the file.
  const std::vector<TensorEntry>& tensors() const;
  const std::map<std::string, std::string>& metadata() const;
  /// Null when there is none of that name.
  const TensorEntry* find(const std::string& name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Writes the tensors (in the given order, each 64-byte aligned through padding of the header only where the format
/// allows; the format has no holes) and the metadata, atomically. Throws Error on a duplicate name, an unknown
/// dtype, a size that does not match the shape, or an I/O failure.
ULP_API void write_safetensors(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                               const std::map<std::string, std::string>& metadata);

}  // namespace ulp
