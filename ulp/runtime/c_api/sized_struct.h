// Structs of the C API that begin with struct_size: read from and written for programs of older and newer headers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "ulp/runtime/c_api/guard.h"

namespace ulp::runtime::c_api {

/// No version of a struct has more bytes: a struct_size beyond is a number that nobody set.
inline constexpr size_t kLargestStruct = 4096;

/// The struct_size of a struct that a caller gave. Fields fill multiples of 8 bytes, so no other size ends between two.
template <typename T>
size_t checked_size(const char* function, const T* given, const char* name) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>);
  static_assert(sizeof(T) % 8 == 0 && sizeof(T) <= kLargestStruct && offsetof(T, struct_size) == 0);
  const size_t size = given->struct_size;
  if (size < sizeof(size_t) || size > kLargestStruct || size % 8 != 0)
    refuse(function, "expected ", name, "->struct_size to be its sizeof (", sizeof(T),
           " in this version), got ", size);
  return size;
}

/// The options that a caller gave, of this version: zeros where its struct is older and shorter. Null gives the defaults.
/// Throws BadArgument for a newer struct that asks for what this version does not know.
template <typename T>
T read_options(const char* function, const T* given) {
  T options = {};
  if (given == nullptr) return options;
  const size_t size = checked_size(function, given, "options");
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  std::memcpy(&options, bytes, std::min(size, sizeof(T)));
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == std::byte{0}) continue;
    refuse(ErrorCode::unavailable, function,
           "expected 0 in the options that are newer than this library (byte ", i,
           " of them), got another number: use libulp_runtime of the version of the header");
  }
  if (options.reserved != 0)
    refuse(ErrorCode::bad_option, function, "expected options->reserved to be 0, got ", options.reserved);
  return options;
}

/// Fills a struct of the caller: as much of it as both sides know, and zeros behind.
template <typename T>
void write_struct(const char* function, const T& made, T* out, const char* name) {
  expect_pointer(function, out, name);
  const size_t size = checked_size(function, out, name);
  auto* bytes = reinterpret_cast<std::byte*>(out);
  const size_t known = std::min(size, sizeof(T));
  std::memcpy(bytes + sizeof(size_t), reinterpret_cast<const std::byte*>(&made) + sizeof(size_t),
              known - sizeof(size_t));
  std::memset(bytes + known, 0, size - known);
}

}  // namespace ulp::runtime::c_api
