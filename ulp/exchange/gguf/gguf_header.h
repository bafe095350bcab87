// The bytes of a GGUF file before its tensors: keys and values. Internal to the room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/exchange/gguf/gguf_reader.h"

namespace ulp::exchange::gguf {

/// Collects them.
class Header {
 public:
  template <typename Number>
  void number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {
    number<uint64_t>(value.size());
    bytes_ += value;
  }
  void pair(const std::string& key, const std::string& value) {
    begin(key, ValueType::text);
    text(value);
  }
  void pair(const std::string& key, uint32_t value) {
    begin(key, ValueType::u32);
    number(value);
  }
  void pair(const std::string& key, float value) {
    begin(key, ValueType::f32);
    number(value);
  }
  void pair(const std::string& key, bool value) {
    begin(key, ValueType::boolean);
    number(static_cast<uint8_t>(value));
  }
  void pair(const std::string& key, const std::vector<std::string>& values) {
    begin_array(key, ValueType::text, values.size());
    for (const std::string& value : values) text(value);
  }
  void pair(const std::string& key, const std::vector<int32_t>& values) {
    begin_array(key, ValueType::i32, values.size());
    for (const int32_t value : values) number(value);
  }
  const std::string& bytes() const { return bytes_; }
  uint64_t pairs() const { return pairs_; }

 private:
  void begin(const std::string& key, ValueType type) {
    ++pairs_;
    text(key);
    number(static_cast<uint32_t>(type));
  }
  void begin_array(const std::string& key, ValueType type, size_t count) {
    begin(key, ValueType::array);
    number(static_cast<uint32_t>(type));
    number<uint64_t>(count);
  }

  std::string bytes_;
  uint64_t pairs_ = 0;
};

}  // namespace ulp::exchange::gguf
