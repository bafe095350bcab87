// Zip archives for harnesses: their entries are changed, and the archive is made again, with its checksums right.
#pragma once

#include <zip.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ulp::fuzz {

using Bytes = std::vector<uint8_t>;

struct ArchiveEntry {
  std::string name;
  Bytes bytes;
};

/// The archive's entries as they are; none where it cannot be read.
inline std::vector<ArchiveEntry> entries_of(const std::filesystem::path& path) {
  constexpr uint64_t kMostBytes = 1 << 20;
  std::vector<ArchiveEntry> entries;
  zip_t* archive = zip_open(path.c_str(), ZIP_RDONLY, nullptr);
  if (archive == nullptr) return entries;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive, 0); ++i) {
    zip_stat_t stat;
    if (zip_stat_index(archive, static_cast<zip_uint64_t>(i), 0, &stat) != 0 || stat.size > kMostBytes)
      continue;
    zip_file_t* file = zip_fopen_index(archive, static_cast<zip_uint64_t>(i), 0);
    if (file == nullptr) continue;
    ArchiveEntry entry{stat.name, Bytes(stat.size)};
    if (zip_fread(file, entry.bytes.data(), stat.size) == static_cast<zip_int64_t>(stat.size)) {
      entries.push_back(std::move(entry));
    }
    zip_fclose(file);
  }
  zip_discard(archive);
  return entries;
}

/// An archive of the entries; empty where libzip refuses them.
inline Bytes archive_of(const std::vector<ArchiveEntry>& entries, zip_int32_t method = ZIP_CM_DEFAULT) {
  Bytes made;
  zip_source_t* whole = zip_source_buffer_create(nullptr, 0, 0, nullptr);
  zip_t* archive = whole == nullptr ? nullptr : zip_open_from_source(whole, ZIP_TRUNCATE, nullptr);
  if (archive == nullptr) {
    zip_source_free(whole);
    return made;
  }
  zip_source_keep(whole);
  for (const ArchiveEntry& entry : entries) {
    zip_source_t* source = zip_source_buffer(archive, entry.bytes.data(), entry.bytes.size(), 0);
    const zip_int64_t place = zip_file_add(archive, entry.name.c_str(), source, 0);
    if (place < 0) {
      zip_source_free(source);
    } else {
      zip_set_file_compression(archive, static_cast<zip_uint64_t>(place), method, 0);
    }
  }
  if (zip_close(archive) != 0) {
    zip_discard(archive);
  } else if (zip_stat_t stat; zip_source_stat(whole, &stat) == 0 && zip_source_open(whole) == 0) {
    made.resize(stat.size);
    if (zip_source_read(whole, made.data(), made.size()) < 0) made.clear();
    zip_source_close(whole);
  }
  zip_source_free(whole);
  return made;
}

}  // namespace ulp::fuzz
