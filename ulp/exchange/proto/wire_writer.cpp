#include "ulp/exchange/proto/wire_writer.h"

#include <array>
#include <bit>

namespace ulp::exchange {

namespace {

// The kinds of fields that the low three bits of a tag tell.
constexpr uint64_t kVarint = 0, kBytes = 2, kFixed32 = 5;

constexpr uint64_t tag(int field, uint64_t kind) {
  return static_cast<uint64_t>(field) << 3 | kind;
}

}  // namespace

void WireWriter::put(const void* data, size_t bytes) {
  if (sink_ != nullptr && bytes > 0) (*sink_)(data, bytes);
  size_ += bytes;
}

void WireWriter::varint(uint64_t value) {
  constexpr size_t kLongest = 10;
  std::array<uint8_t, kLongest> bytes{};
  size_t count = 0;
  for (; value >= 0x80; value >>= 7) bytes[count++] = static_cast<uint8_t>(value | 0x80);
  bytes[count++] = static_cast<uint8_t>(value);
  put(bytes.data(), count);
}

void WireWriter::begin(int field, uint64_t bytes) {
  varint(tag(field, kBytes));
  varint(bytes);
}

void WireWriter::integer(int field, int64_t value) {
  varint(tag(field, kVarint));
  varint(static_cast<uint64_t>(value));
}

void WireWriter::number(int field, float value) {
  varint(tag(field, kFixed32));
  const auto bits = std::bit_cast<uint32_t>(value);
  std::array<uint8_t, 4> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(bits >> (8 * i));
  put(bytes.data(), bytes.size());
}

void WireWriter::bytes(int field, const void* data, size_t size) {
  begin(field, size);
  put(data, size);
}

}  // namespace ulp::exchange
