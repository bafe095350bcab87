#include "ulp/exchange/proto/wire_reader.h"

#include <bit>
#include <cstring>

#include "ulp/base/error.h"

namespace ulp::exchange {

namespace {

static_assert(std::endian::native == std::endian::little, "fixed fields are read as they lie in memory");

template <typename T>
T fixed(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// Packed numbers of a fixed size.
template <typename T>
void append_fixed(std::string_view bytes, std::vector<T>& values) {
  const size_t before = values.size(), count = bytes.size() / sizeof(T);
  values.resize(before + count);
  if (count > 0) std::memcpy(values.data() + before, bytes.data(), count * sizeof(T));
}

/// Bytes of the character that starts with this one; 0 for one that starts none.
size_t length_of(uint8_t first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

}  // namespace

bool is_plain_text(std::string_view bytes) {
  constexpr uint8_t kDelete = 0x7F;
  for (size_t i = 0; i < bytes.size();) {
    const auto first = static_cast<uint8_t>(bytes[i]);
    const size_t length = length_of(first);
    if (length == 0 || length > bytes.size() - i || first < 0x20 || first == kDelete) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<uint8_t>(bytes[i + k]) & 0xC0) != 0x80) return false;
    }
    const auto second = length > 1 ? static_cast<uint8_t>(bytes[i + 1]) : uint8_t{0};
    // Longer forms than needed, halves of pairs, and what is beyond the last character.
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
      return false;
    i += length;
  }
  return true;
}

void WireReader::refuse(const std::string& what) const {
  fail_file("exchange.read_message", "expected ", what, " in field ", field_, " of ", where_);
}

uint64_t WireReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == message_.size()) fail_file("exchange.read_message", "a number ends early in ", where_);
    const auto byte = static_cast<uint8_t>(message_[at_++]);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  fail_file("exchange.read_message", "a number has more than ten bytes in ", where_);
}

std::string_view WireReader::take(uint64_t count) {
  if (count > message_.size() - at_)
    fail_file("exchange.read_message", "field ", field_, " of ", where_, " has ", count, " bytes, of which ",
              message_.size() - at_, " are there");
  const std::string_view taken = message_.substr(at_, count);
  at_ += count;
  return taken;
}

bool WireReader::next() {
  if (at_ == message_.size()) return false;
  const uint64_t tag = varint();
  field_ = tag >> 3;
  if (field_ == 0) fail_file("exchange.read_message", "a field has the number 0 in ", where_);
  switch (tag & 7) {
    case 0:
      kind_ = Kind::varint;
      value_ = varint();
      return true;
    case 1:
      kind_ = Kind::fixed64;
      bytes_ = take(sizeof(uint64_t));
      return true;
    case 2:
      kind_ = Kind::bytes;
      bytes_ = take(varint());
      return true;
    case 5:
      kind_ = Kind::fixed32;
      bytes_ = take(sizeof(uint32_t));
      return true;
    default:
      refuse("a number or bytes, got a kind that is not known,");
  }
}

void WireReader::expect(Kind kind, const char* what) const {
  if (kind_ != kind) refuse(what);
}

int64_t WireReader::integer() const {
  expect(Kind::varint, "a whole number");
  return static_cast<int64_t>(value_);
}

float WireReader::number() const {
  expect(Kind::fixed32, "a float");
  return fixed<float>(bytes_);
}

std::string_view WireReader::bytes() const {
  expect(Kind::bytes, "bytes");
  return bytes_;
}

std::string_view WireReader::text() const {
  const std::string_view found = bytes();
  if (!is_plain_text(found)) refuse("text in UTF-8 without control characters");
  return found;
}

void WireReader::append(std::vector<int64_t>& values) const {
  if (kind_ != Kind::bytes) return values.push_back(integer());
  WireReader packed(bytes_, where_);
  packed.field_ = field_;
  while (packed.at_ < packed.message_.size()) values.push_back(static_cast<int64_t>(packed.varint()));
}

void WireReader::append(std::vector<float>& values) const {
  if (kind_ != Kind::bytes) return values.push_back(number());
  if (bytes_.size() % sizeof(float) != 0) refuse("floats");
  append_fixed(bytes_, values);
}

void WireReader::append(std::vector<double>& values) const {
  if (kind_ == Kind::fixed64) return values.push_back(fixed<double>(bytes_));
  if (kind_ != Kind::bytes || bytes_.size() % sizeof(double) != 0) refuse("doubles");
  append_fixed(bytes_, values);
}

}  // namespace ulp::exchange
