// A reader of protocol buffers' wire format for tests: it shares nothing with the writer.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace ulp::test {

/// One field of a message.
struct WireField {
  uint64_t number = 0, kind = 0, value = 0;
  std::string_view bytes;
};

/// The fields of a message in order; throws for what is no message.
inline std::vector<WireField> wire_fields(std::string_view message) {
  std::vector<WireField> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at == message.size()) throw std::runtime_error("a number ends early");
      const auto byte = static_cast<uint8_t>(message[at++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("a number is too long");
  };
  while (at < message.size()) {
    const uint64_t tag = varint();
    WireField field{.number = tag >> 3, .kind = tag & 7, .value = 0, .bytes = {}};
    if (field.kind == 0) {
      field.value = varint();
    } else {
      const uint64_t size = field.kind == 2 ? varint() : 4;
      if ((field.kind != 2 && field.kind != 5) || size > message.size() - at)
        throw std::runtime_error("a field of no kind, or beyond the end");
      field.bytes = message.substr(at, size);
      at += size;
    }
    fields.push_back(field);
  }
  return fields;
}

}  // namespace ulp::test
