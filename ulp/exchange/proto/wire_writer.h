// Writing messages of protocol buffers in their wire format: tagged fields, whole numbers of variable length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "ulp/base/export.h"

namespace ulp::exchange {

/// Writes the fields of one message, in the order of the calls, to a sink. A message inside a message needs its size
/// first: what writes it runs twice, once only to count. So nothing is held in memory but what the sink holds.
/// Format: protobuf.dev/programming-guides/encoding.
class ULP_API WireWriter {
 public:
  /// Takes bytes as they come.
  using Sink = std::function<void(const void* data, size_t bytes)>;

  /// Without a sink it counts.
  explicit WireWriter(const Sink* sink = nullptr) : sink_(sink) {}

  /// int32, int64, bool, enum: negative numbers take ten bytes.
  void integer(int field, int64_t value);
  /// float.
  void number(int field, float value);
  /// string or bytes.
  void bytes(int field, const void* data, size_t size);
  void text(int field, std::string_view text) { bytes(field, text.data(), text.size()); }
  /// A message: `write(WireWriter&)` writes its fields, the same ones each time.
  template <typename Write>
  void message(int field, const Write& write) {
    WireWriter counter;
    write(counter);
    begin(field, counter.size());
    // What only counts has counted: messages in messages take time in proportion to their depth, not its power of 2.
    if (counts()) {
      size_ += counter.size();
    } else {
      write(*this);
    }
  }

  /// Whether it has no sink: bytes() may get null.
  bool counts() const { return sink_ == nullptr; }
  /// Bytes written so far.
  uint64_t size() const { return size_; }

 private:
  void put(const void* data, size_t bytes);
  void varint(uint64_t value);
  /// Tag and size of a field of bytes.
  void begin(int field, uint64_t bytes);

  const Sink* sink_;
  uint64_t size_ = 0;
};

}  // namespace ulp::exchange
