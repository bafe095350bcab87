// The bytes of NumPy files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
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

/// Of zip archives.
inline uint32_t crc_of(const std::string& bytes) {
  uint32_t crc = 0xffffffffU;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xedb88320U & (0U - (crc & 1U)));
  }
  return ~crc;
}

inline std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

/// A .npz file of arrays by their names, each the bytes of a .npy file; a zip archive that stores.
inline std::string npz(const std::vector<std::pair<std::string, std::string>>& arrays) {
  std::string files, list;
  for (const auto& [array, content] : arrays) {
    const std::string name = array + ".npy";
    const std::string about = little_endian(20, 2) + little_endian(0, 2) + little_endian(0, 2) +
                              little_endian(0, 4) + little_endian(crc_of(content), 4) +
                              little_endian(content.size(), 4) + little_endian(content.size(), 4) +
                              little_endian(name.size(), 2) + little_endian(0, 2);
    list += "PK\x01\x02" + little_endian(20, 2) + about + little_endian(0, 2) + little_endian(0, 2) +
            little_endian(0, 2) + little_endian(0, 4) + little_endian(files.size(), 4) + name;
    files += "PK\x03\x04" + about + name + content;
  }
  const size_t start = files.size();
  return files + list + "PK\x05\x06" + little_endian(0, 4) + little_endian(arrays.size(), 2) +
         little_endian(arrays.size(), 2) + little_endian(list.size(), 4) + little_endian(start, 4) +
         little_endian(0, 2);
}

}  // namespace ulp::test
