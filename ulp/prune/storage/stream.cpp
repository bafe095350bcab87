#include "ulp/prune/storage/stream.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

#include "ulp/base/error.h"
#include "ulp/prune/storage/huffman.h"

namespace ulp::prune {
namespace {

enum StreamCoding : uint8_t { kPacked, kHuffman, kDeflate };

constexpr int kRawDeflate = -MAX_WBITS;  // neither header nor checksum: the file has one of its own
constexpr int kLevel = 6,
              kMemoryLevel = 9;  // level 9 takes 16 times as long on sparse numbers for 1 % less of a bitmask
constexpr uint64_t kMostForZlib = uint64_t{1} << 30;  // zlib counts in 32 bits

uint64_t packed_bytes(uint64_t count, int width) {
  return count / 8 * static_cast<uint64_t>(width) + (count % 8 * static_cast<uint64_t>(width) + 7) / 8;
}

void pack(Bytes& out, std::span<const uint8_t> symbols, int width) {
  BitWriter bits(out);
  for (const uint8_t symbol : symbols) bits.put(symbol, width);
  bits.finish();
}

std::vector<uint8_t> unpack(std::span<const std::byte> bytes, uint64_t count, int width) {
  BitReader bits(bytes);
  std::vector<uint8_t> symbols(count);
  for (uint8_t& symbol : symbols) symbol = static_cast<uint8_t>(bits.take(width));
  bits.finish();
  return symbols;
}

Bytef* zlib_bytes(const void* bytes) {
  return static_cast<Bytef*>(const_cast<void*>(bytes));
}

/// The symbols deflated to fewer than `room` bytes; empty where they take more, are none or too many for zlib.
/// zlib ends a stream only where a byte of room is left, and its own bound of the room is too small for some.
Bytes deflated(std::span<const uint8_t> symbols, size_t room) {
  if (symbols.empty() || symbols.size() > kMostForZlib || room == 0) return {};
  z_stream zlib{};
  if (deflateInit2(&zlib, kLevel, Z_DEFLATED, kRawDeflate, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
    fail("prune.put_stream", "zlib could not start: out of memory?");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&zlib, deflateEnd);
  Bytes out(room);
  zlib.next_in = zlib_bytes(symbols.data());
  zlib.avail_in = static_cast<uInt>(symbols.size());
  zlib.next_out = zlib_bytes(out.data());
  zlib.avail_out = static_cast<uInt>(out.size());
  if (deflate(&zlib, Z_FINISH) != Z_STREAM_END) return {};
  out.resize(zlib.total_out);
  return out;
}

std::vector<uint8_t> inflated(std::span<const std::byte> bytes, uint64_t count) {
  constexpr uint64_t kMostRatio = 1032;  // no deflated byte means more
  if (bytes.size() > kMostForZlib || count > kMostForZlib || count > kMostRatio * bytes.size()) {
    throw CodesProblem{"deflated codes are too short or too long for their count"};
  }
  std::vector<uint8_t> symbols(count);
  z_stream zlib{};
  if (inflateInit2(&zlib, kRawDeflate) != Z_OK) throw CodesProblem{"zlib could not start: out of memory?"};
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&zlib, inflateEnd);
  Bytef none = 0;  // zlib refuses null
  zlib.next_in = zlib_bytes(bytes.data());
  zlib.avail_in = static_cast<uInt>(bytes.size());
  zlib.next_out = count == 0 ? &none : symbols.data();
  zlib.avail_out = static_cast<uInt>(count);
  const int result = inflate(&zlib, Z_FINISH);
  if (result != Z_STREAM_END || zlib.avail_in != 0 || zlib.total_out != count) {
    throw CodesProblem{"deflated codes are damaged, or others than their count says"};
  }
  return symbols;
}

/// A stream as it lies in a file.
struct Coded {
  StreamCoding form;
  std::span<const std::byte> bytes;
};

Coded take_coded(ByteReader& reader, uint64_t count, int width) {
  const uint8_t form = reader.byte();
  if (form > kDeflate) throw CodesProblem{"expected codes of form 0, 1 or 2, got " + std::to_string(form)};
  return {static_cast<StreamCoding>(form),
          reader.take(form == kPacked ? packed_bytes(count, width) : reader.integer())};
}

}  // namespace

void put_stream(Bytes& out, std::span<const uint8_t> symbols, int width, EntropyCoder coder) {
  StreamCoding form = kPacked;
  Bytes best;
  pack(best, symbols, width);
  const auto consider = [&](StreamCoding other, Bytes bytes) {
    Bytes whole;
    put_integer(whole, bytes.size());
    put_bytes(whole, bytes);
    if (bytes.empty() || whole.size() >= best.size()) return;
    form = other;
    best = std::move(whole);
  };
  if (coder != EntropyCoder::none) consider(kHuffman, huffman_encode(symbols));
  if (coder == EntropyCoder::smallest) consider(kDeflate, deflated(symbols, best.size()));
  put_byte(out, form);
  put_bytes(out, best);
}

std::vector<uint8_t> take_stream(ByteReader& reader, uint64_t count, int width) {
  const Coded coded = take_coded(reader, count, width);
  if (coded.form == kPacked) return unpack(coded.bytes, count, width);
  if (coded.form == kHuffman) return huffman_decode(coded.bytes, count, width);
  std::vector<uint8_t> symbols = inflated(coded.bytes, count);
  const auto too_large = [&](uint8_t symbol) { return symbol >> width != 0; };
  if (std::ranges::any_of(symbols, too_large)) {
    throw CodesProblem{"a code has more than " + std::to_string(width) + " bits"};
  }
  return symbols;
}

void skip_stream(ByteReader& reader, uint64_t count, int width) {
  take_coded(reader, count, width);
}

}  // namespace ulp::prune
