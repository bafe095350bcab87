// The element types of buffers at run time: one row each. Plans, engine files, kernels and packed weights
// name the same types. Plain data: files compiled for one instruction set include it.
#pragma once

#include <cstdint>

// X(name, bytes, format, stored): the word in engine files, bytes of an element, the entry of
// formats/format.h that it holds ("" for integers that are no number format: codes without sign, sums, ids),
// and whether plans may store it.
#define ULP_DATA_TYPES(X)  \
  X(f32, 4, "fp32", true)  \
  X(bf16, 2, "bf16", true) \
  X(u8, 1, "", true)       \
  X(i8, 1, "int8", true)   \
  X(i32, 4, "", true)      \
  X(i64, 8, "", true)      \
  X(f16, 2, "fp16", false) \
  X(i16, 2, "", false)     \
  X(f64, 8, "fp64", false)

namespace ulp {

#define ULP_ENUMERATOR(name, ...) name,
/// The rows of the table by name.
enum class DataType : uint8_t { ULP_DATA_TYPES(ULP_ENUMERATOR) };
#undef ULP_ENUMERATOR

/// One row of the table.
struct DataTypeInfo {
  const char* name;
  int64_t bytes;
  const char* format;
  bool stored;
};

#define ULP_ROW(name, bytes, format, stored) {#name, bytes, format, stored},
/// All rows, in the order of the enumerators.
inline constexpr DataTypeInfo kDataTypes[] = {ULP_DATA_TYPES(ULP_ROW)};
#undef ULP_ROW
/// How many there are.
inline constexpr int kDataTypeCount = sizeof(kDataTypes) / sizeof(kDataTypes[0]);

/// False for a number that is no enumerator, as a hostile file may hold.
constexpr bool is_known(DataType type) {
  return static_cast<int>(type) < kDataTypeCount;
}
/// "bf16"; "unknown" for a number that is no enumerator.
constexpr const char* to_string(DataType type) {
  return is_known(type) ? kDataTypes[static_cast<int>(type)].name : "unknown";
}
/// A type of tensors and constants of plans; false for a number that is no enumerator.
constexpr bool is_stored(DataType type) {
  return is_known(type) && kDataTypes[static_cast<int>(type)].stored;
}
/// Bytes of one element; 0 for a number that is no enumerator. Reads no table, so that files of one
/// instruction set share no symbol.
constexpr int64_t element_bytes(DataType type) {
  switch (type) {
#define ULP_CASE(name, bytes, format, stored) \
  case DataType::name:                        \
    return bytes;
    ULP_DATA_TYPES(ULP_CASE)
#undef ULP_CASE
  }
  return 0;
}

}  // namespace ulp
