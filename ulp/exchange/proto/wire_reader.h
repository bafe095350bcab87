// Reading messages of protocol buffers from their wire format. The bytes may be anybody's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::exchange {

/// Goes through the fields of one message in order. It copies nothing: what bytes() gives lies in the
/// message. Every error is a FileError that names the message, as its maker called it, and the field.
/// Groups, which the format has given up, are refused. Format: protobuf.dev/programming-guides/encoding.
class ULP_API WireReader {
 public:
  /// What is in a field.
  enum class Kind : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

  /// `where` says what the message is: "'model.onnx', node 3 of the graph".
  WireReader(std::string_view message, std::string where) : message_(message), where_(std::move(where)) {}

  /// Moves to the next field; false at the end.
  bool next();
  /// The number of the field.
  uint64_t field() const { return field_; }
  Kind kind() const { return kind_; }
  const std::string& where() const { return where_; }

  /// The field as int32, int64, bool or enum.
  int64_t integer() const;
  /// As float.
  float number() const;
  /// As string, bytes or a message.
  std::string_view bytes() const;
  /// As text that is UTF-8 without control characters; names go into messages and JSON.
  std::string_view text() const;
  /// A message inside; `what` follows the name of this one.
  WireReader message(const std::string& what) const { return {bytes(), where_ + what}; }
  /// Adds the numbers of a repeated field, which stand alone or packed.
  void append(std::vector<int64_t>& values) const;
  void append(std::vector<float>& values) const;
  void append(std::vector<double>& values) const;

  /// Throws FileError: expected `what` in this field.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  uint64_t varint();
  std::string_view take(uint64_t count);
  void expect(Kind kind, const char* what) const;

  std::string_view message_;
  std::string where_;
  size_t at_ = 0;
  uint64_t field_ = 0, value_ = 0;
  Kind kind_ = Kind::varint;
  std::string_view bytes_;
};

/// Whether bytes are UTF-8 without control characters.
ULP_API bool is_plain_text(std::string_view bytes);

}  // namespace ulp::exchange
