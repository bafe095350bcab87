// The safetensors container: named tensors and string metadata in one file, read where it is mapped or lies in memory.
//
// Layout: 8 bytes little-endian header length N, N bytes of JSON, then the tensors' bytes. The JSON maps a
// name to {"dtype", "shape", "data_offsets": [begin, end]} relative to the end of the header; "__metadata__"
// maps strings to strings. Contract of the format (https://github.com/huggingface/safetensors): header at
// most 100,000,000 bytes and starts with '{', names unique, offsets in bounds, without holes or overlaps,
// equal to the shape's bytes, and the data section has no bytes that belong to no tensor.
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

/// One tensor's entry: dtype is the format's own word ("F32", "BF16", "F16", "F64", "I8", "U8", "I16", "U16",
/// "I32", "U32", "I64", "U64", "BOOL", "C64", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0",
/// "F6_E2M3", "F6_E3M2", "F4").
/// The bytes are little-endian, in row-major order, and not always aligned for the dtype: the format has no
/// padding between tensors.
struct TensorEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Bytes of one element of a safetensors dtype; 0 for an unknown word and for the dtypes below a byte.
ULP_API size_t safetensors_element_size(const std::string& dtype);

/// A file opened for reading. The spans of the entries point into the mapping and live as long as this
/// object.
class ULP_API SafetensorsFile {
 public:
  /// Maps and checks the whole header. Throws FileError for a file that is missing, unreadable, truncated or
  /// hostile.
  explicit SafetensorsFile(const std::filesystem::path& path);
  /// Reads a file's bytes, which outlive this object and stay as they are. Errors call them `name`.
  SafetensorsFile(std::span<const std::byte> bytes, const std::string& name);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  /// In the order of their bytes in the file.
  const std::vector<TensorEntry>& tensors() const;
  const std::map<std::string, std::string>& metadata() const;
  /// Null when there is none of that name.
  const TensorEntry* find(const std::string& name) const;

 private:
  void read(const std::string& name);

  struct State;
  std::unique_ptr<State> state_;
};

/// Writes the tensors in the given order, without holes, and the metadata, atomically. The header is padded
/// with spaces so that the data starts at a multiple of 64 bytes of the file, hence of a mapping; a tensor
/// after it is aligned only as far as the sizes before it allow, so write the widest dtypes first. Throws
/// Error on a duplicate or reserved name, an unknown dtype, a size that does not match the shape, text that
/// is not UTF-8, or an I/O failure.
ULP_API void write_safetensors(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                               const std::map<std::string, std::string>& metadata);

}  // namespace ulp
