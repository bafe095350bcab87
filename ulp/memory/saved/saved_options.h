// How the tensors that stay for the backward pass are kept: in which format, and where.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"

namespace ulp {
class FieldVisitor;
}

namespace ulp::memory {

/// The format of kept floating-point values. All but the first one change gradients.
enum class SavedFormat : uint8_t { exact, bf16, int8, int4 };

/// Where they are kept. On a file or on the host they do not count as memory of the device.
enum class StorageLocation : uint8_t { memory, host, file };

/// Options for the tensors that stay until the backward pass.
struct ULP_API SavedOptions {
  SavedFormat format = SavedFormat::exact;
  /// One bit an element where the backward asks no more: which results of a ReLU are positive, what a dropout
  /// kept, bools. Exact.
  bool masks = false;
  int64_t group = 256;  ///< int8, int4: neighbours in memory that share a scale; a multiple of 64
  StorageLocation place = StorageLocation::memory;
  /// The folder of the file, which has no name and is gone with the process. Empty: that of temporary files.
  std::string folder = {};
  int64_t smallest = 4096;  ///< bytes; smaller tensors stay as they are
  uint64_t seed = 1;        ///< of stochastic rounding; the random state of the process is not touched

  /// Every field with its limits and its help.
  void visit_fields(FieldVisitor& visitor);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// Whether anything is done at all.
  bool active() const { return format != SavedFormat::exact || masks || place != StorageLocation::memory; }
  bool operator==(const SavedOptions&) const = default;
};

}  // namespace ulp::memory

namespace ulp {

template <>
struct EnumNames<memory::SavedFormat> {
  static constexpr std::array<Word<memory::SavedFormat>, 4> list = {{
      {memory::SavedFormat::exact, "exact", "as it is"},
      {memory::SavedFormat::bf16, "bf16", "fp32 values rounded to bf16"},
      {memory::SavedFormat::int8, "int8", "groups of codes of 8 bits, rounded stochastically"},
      {memory::SavedFormat::int4, "int4", "groups of codes of 4 bits, rounded stochastically"},
  }};
};

template <>
struct EnumNames<memory::StorageLocation> {
  static constexpr std::array<Word<memory::StorageLocation>, 3> list = {{
      {memory::StorageLocation::memory, "memory", "where it is"},
      {memory::StorageLocation::host, "host", "values of a GPU in the memory of the host"},
      {memory::StorageLocation::file, "file", "a temporary file"},
  }};
};

}  // namespace ulp
