// Reading and writing the bytes of coded tensors: single bits, the most significant first (numpy.packbits has
// the same order), and integers of seven bits a byte, the lowest first (LEB128). Internal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ulp::prune {

using Bytes = std::vector<std::byte>;

/// What is wrong with coded bytes. Readers throw it; callers word it as the error of their file.
struct CodesProblem {
  std::string text;
};

/// Most dimensions of a coded tensor.
inline constexpr size_t kMostDimensions = 64;

inline void put_byte(Bytes& out, uint64_t value) {
  out.push_back(static_cast<std::byte>(value & 255));
}

inline void put_integer(Bytes& out, uint64_t value) {
  for (; value >= 128; value >>= 7) put_byte(out, value | 128);
  put_byte(out, value);
}

inline void put_bytes(Bytes& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

/// Takes bytes from the front. Throws CodesProblem past the end.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t left() const { return bytes_.size() - at_; }
  /// How many bytes were taken.
  size_t taken() const { return at_; }

  uint8_t byte() { return std::to_integer<uint8_t>(take(1)[0]); }
  /// An integer in its only form: without a last byte of 0 that adds nothing.
  uint64_t integer() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint64_t next = byte();
      if ((shift == 63 && next > 1) || (shift > 0 && next == 0))
        throw CodesProblem{"an integer is not well-formed"};
      value |= (next & 127) << shift;
      if (next < 128) return value;
    }
  }
  std::span<const std::byte> take(uint64_t count) {
    if (count > left()) {
      throw CodesProblem{"expected " + std::to_string(count) + " more bytes, got " + std::to_string(left())};
    }
    const auto part = bytes_.subspan(at_, count);
    at_ += count;
    return part;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

class BitWriter {
 public:
  explicit BitWriter(Bytes& out) : out_(out) {}
  /// Appends the low `bits` bits of `code`, at most 32.
  void put(uint32_t code, int bits) {
    waiting_ = waiting_ << bits | code;
    for (count_ += bits; count_ >= 8; count_ -= 8) put_byte(out_, waiting_ >> (count_ - 8));
  }
  /// Fills the last byte with zeros.
  void finish() {
    if (count_ > 0) put(0, 8 - count_);
  }

 private:
  Bytes& out_;
  uint64_t waiting_ = 0;
  int count_ = 0;
};

class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  /// The next `bits` bits, at most 32; zeros past the end.
  uint32_t peek(int bits) {
    for (; count_ < bits; count_ += 8) {
      waiting_ = waiting_ << 8 | (at_ < bytes_.size() ? std::to_integer<uint64_t>(bytes_[at_]) : 0);
      ++at_;
    }
    return static_cast<uint32_t>(waiting_ >> (count_ - bits) & ((uint64_t{1} << bits) - 1));
  }
  void skip(int bits) {
    peek(bits);
    count_ -= bits;
    used_ += static_cast<uint64_t>(bits);
  }
  uint32_t take(int bits) {
    const uint32_t value = peek(bits);
    skip(bits);
    return value;
  }
  /// Throws CodesProblem unless all that is left is zeros of the last byte.
  void finish() {
    const uint64_t all = 8 * static_cast<uint64_t>(bytes_.size());
    if (used_ > all) throw CodesProblem{"the codes end early"};
    if (all - used_ >= 8 || take(static_cast<int>(all - used_)) != 0) {
      throw CodesProblem{"bits are left after the last code"};
    }
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  uint64_t waiting_ = 0, used_ = 0;
  int count_ = 0;
};

}  // namespace ulp::prune
