#include "ulp/prune/storage/file_stamp.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "ulp/base/fields_json.h"
#include "ulp/base/parse_json.h"
#include "ulp/prune/storage/bytes.h"

namespace ulp::prune {
namespace {

using nlohmann::json;

class Checksum {
 public:
  void add(const void* bytes, size_t count) {
    // crc32() starts anew where it is given null.
    if (count > 0) crc_ = crc32_z(crc_, static_cast<const Bytef*>(bytes), count);
  }
  /// Numbers and texts with their lengths, so that no two lists of them read alike.
  void add(uint64_t number) { add(&number, sizeof number); }
  void add(const std::string& text) {
    add(text.size());
    add(text.data(), text.size());
  }
  void add(const std::map<std::string, std::string>& texts) {
    add(texts.size());
    for (const auto& [key, value] : texts) {
      add(key);
      add(value);
    }
  }
  uint32_t value() const { return static_cast<uint32_t>(crc_); }

 private:
  uLong crc_ = crc32_z(0, nullptr, 0);
};

}  // namespace

std::string FileStamp::to_json() const {
  json out = {{"version", kFileVersion}, {"crc32", checksum}};
  if (!aliases.empty()) out["aliases"] = aliases;
  return out.dump();
}

FileStamp FileStamp::from_json(const std::string& text) {
  const json in = parse_json_or_discarded(text);
  const json version = in.is_object() ? in.value("version", json()) : json();
  if (!version.is_number_integer() || version != kFileVersion) {
    throw CodesProblem{"expected a compressed file of version " + std::to_string(kFileVersion) + ", got " +
                       shown(version)};
  }
  FileStamp stamp;
  const json checksum = in.value("crc32", json());
  if (!checksum.is_number_unsigned() || checksum.get<uint64_t>() > std::numeric_limits<uint32_t>::max())
    throw CodesProblem{"expected a checksum of 32 bits, got " + shown(checksum)};
  stamp.checksum = checksum.get<uint32_t>();
  const json aliases = in.value("aliases", json::object());
  const auto is_text = [](const json& value) { return value.is_string(); };
  if (!aliases.is_object() || !std::ranges::all_of(aliases, is_text))
    throw CodesProblem{"expected aliases that are names, got " + shown(aliases)};
  stamp.aliases = aliases.get<std::map<std::string, std::string>>();
  return stamp;
}

uint32_t checksum_of(std::span<const TensorEntry> entries, const std::map<std::string, std::string>& metadata,
                     const std::map<std::string, std::string>& aliases) {
  std::vector<const TensorEntry*> sorted;
  for (const TensorEntry& entry : entries) sorted.push_back(&entry);
  std::ranges::sort(sorted, {}, &TensorEntry::name);
  Checksum sum;
  for (const TensorEntry* entry : sorted) {
    sum.add(entry->name);
    sum.add(entry->dtype);
    sum.add(entry->shape.size());
    for (const int64_t size : entry->shape) sum.add(static_cast<uint64_t>(size));
    sum.add(entry->bytes.data(), entry->bytes.size());
  }
  std::map<std::string, std::string> rest = metadata;
  rest.erase(kStampKey);
  sum.add(rest);
  sum.add(aliases);
  return sum.value();
}

}  // namespace ulp::prune
