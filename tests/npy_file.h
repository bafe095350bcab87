// The bytes of a NumPy file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ulp::test {

/// A .npy file of little-endian values: its type ("<f4"), its shape ("200, 3") and the bytes of its values.
inline std::string npy(const std::string& type, const std::string& shape, const std::string& values) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize((header.size() + 10 + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  const auto size = static_cast<uint16_t>(header.size());
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(size & 255) + static_cast<char>(size >> 8) +
         header + values;
}

template <typename Value>
std::string bytes_of(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

}  // namespace ulp::test
