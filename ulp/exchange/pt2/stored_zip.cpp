#include "ulp/exchange/pt2/stored_zip.h"

#include <zlib.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/exchange/pt2/where.h"

namespace ulp::exchange::pt2 {

namespace {

constexpr uint64_t kFull32 = 0xffffffff, kFull16 = 0xffff;
constexpr uint16_t kPlainVersion = 20, kLargeVersion = 45, kUtf8 = 0x0800;
constexpr uint16_t kLargeField = 0x0001;
/// Of the fields that only fill: "FB", as PyTorch calls it.
constexpr uint16_t kFillField = 0x4246;
constexpr uint64_t kAlignment = 64;
/// 1980-01-01, the first day that the format has.
constexpr uint16_t kFirstDay = 0x21;

/// Little-endian numbers in a row.
class ZipRecord {
 public:
  ZipRecord& u16(uint64_t number) { return add(number, 2); }
  ZipRecord& u32(uint64_t number) { return add(number, 4); }
  ZipRecord& u64(uint64_t number) { return add(number, 8); }
  ZipRecord& text(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  ZipRecord& add(uint64_t number, int count) {
    for (int i = 0; i < count; ++i) bytes_ += static_cast<char>(number >> (8 * i) & 0xff);
    return *this;
  }
  std::string bytes_;
};

uint64_t capped(uint64_t number) {
  return std::min(number, kFull32);
}

/// Zip64's field of the sizes, and zeros up to the alignment of what follows at `place`.
std::string local_fields(uint64_t size, uint64_t place) {
  ZipRecord fields;
  if (size >= kFull32) fields.u16(kLargeField).u16(16).u64(size).u64(size);
  constexpr uint64_t kHead = 4;
  const uint64_t fill = (kAlignment - (place + fields.bytes().size() + kHead) % kAlignment) % kAlignment;
  fields.u16(kFillField).u16(fill).text(std::string(fill, '\0'));
  return fields.bytes();
}

}  // namespace

StoredZip::StoredZip(const WireWriter::Sink& sink, std::string folder)
    : sink_(sink), folder_(std::move(folder)) {}

void StoredZip::put(std::string_view bytes) {
  sink_(bytes.data(), bytes.size());
  place_ += bytes.size();
}

void StoredZip::add(const std::string& name, std::string_view bytes) {
  Entry entry{.name = folder_ + '/' + name, .size = bytes.size(), .place = place_};
  if (entry.name.size() > kFull16)
    fail(kExportPt2Where, "expected names of entries of at most ", kFull16, " bytes, got one of ",
         entry.name.size());
  entry.checksum =
      static_cast<uint32_t>(::crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  constexpr uint64_t kHeader = 30;
  const std::string fields = local_fields(entry.size, place_ + kHeader + entry.name.size());
  ZipRecord header;
  header.u32(0x04034b50).u16(entry.size >= kFull32 ? kLargeVersion : kPlainVersion).u16(kUtf8).u16(0);
  header.u16(0).u16(kFirstDay).u32(entry.checksum).u32(capped(entry.size)).u32(capped(entry.size));
  header.u16(entry.name.size()).u16(fields.size()).text(entry.name).text(fields);
  put(header.bytes());
  put(bytes);
  entries_.push_back(std::move(entry));
}

void StoredZip::finish() {
  const uint64_t start = place_;
  for (const Entry& entry : entries_) {
    ZipRecord fields;
    const bool large = entry.size >= kFull32, far = entry.place >= kFull32;
    if (large || far) fields.u16(kLargeField).u16((large ? 16 : 0) + (far ? 8 : 0));
    if (large) fields.u64(entry.size).u64(entry.size);
    if (far) fields.u64(entry.place);
    const uint16_t version = large || far ? kLargeVersion : kPlainVersion;
    ZipRecord header;
    header.u32(0x02014b50).u16(version).u16(version).u16(kUtf8).u16(0).u16(0).u16(kFirstDay);
    header.u32(entry.checksum).u32(capped(entry.size)).u32(capped(entry.size));
    header.u16(entry.name.size()).u16(fields.bytes().size()).u16(0).u16(0).u16(0).u32(0);
    header.u32(capped(entry.place)).text(entry.name).text(fields.bytes());
    put(header.bytes());
  }
  const uint64_t end = place_, count = entries_.size();
  ZipRecord tail;
  if (end >= kFull32 || count >= kFull16) {
    tail.u32(0x06064b50).u64(44).u16(kLargeVersion).u16(kLargeVersion).u32(0).u32(0);
    tail.u64(count).u64(count).u64(end - start).u64(start);
    tail.u32(0x07064b50).u32(0).u64(end).u32(1);
  }
  const uint64_t shown = std::min(count, kFull16);
  tail.u32(0x06054b50).u16(0).u16(0).u16(shown).u16(shown).u32(capped(end - start)).u32(capped(start)).u16(0);
  put(tail.bytes());
}

}  // namespace ulp::exchange::pt2
