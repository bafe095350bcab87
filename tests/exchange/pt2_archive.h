// Archives of torch.export for tests: those of tests/golden, and changed copies of them.
#pragma once

#include <zip.h>

#include <filesystem>
#include <map>
#include <string>

#include "file_bytes.h"

namespace ulp::test {

inline std::filesystem::path golden_pt2(const std::string& name) {
  return std::filesystem::path(ULP_SOURCE_DIR) / "tests/golden/pt2" / name;
}

/// The entries of an archive without their folder.
inline std::map<std::string, std::string> pt2_entries(const std::filesystem::path& path) {
  std::map<std::string, std::string> entries;
  zip_t* archive = zip_open(path.c_str(), ZIP_RDONLY, nullptr);
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive, 0); ++i) {
    zip_stat_t stat;
    zip_stat_index(archive, static_cast<zip_uint64_t>(i), 0, &stat);
    std::string content(stat.size, '\0');
    zip_file_t* file = zip_fopen_index(archive, stat.index, 0);
    zip_fread(file, content.data(), content.size());
    zip_fclose(file);
    const std::string name = stat.name;
    entries[name.substr(name.find('/') + 1)] = content;
  }
  zip_discard(archive);
  return entries;
}

/// Writes entries under their whole names, stored or deflated.
inline void write_zip(const std::filesystem::path& path, const std::map<std::string, std::string>& entries,
                      zip_int32_t method = ZIP_CM_STORE) {
  std::filesystem::remove(path);
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  for (const auto& [name, content] : entries) {
    zip_source_t* source = zip_source_buffer(archive, content.data(), content.size(), 0);
    const zip_int64_t at = zip_file_add(archive, name.c_str(), source, ZIP_FL_OVERWRITE);
    zip_set_file_compression(archive, static_cast<zip_uint64_t>(at), method, 0);
  }
  zip_close(archive);
}

/// An archive of these entries in one folder.
inline void write_pt2(const std::filesystem::path& path, const std::map<std::string, std::string>& entries) {
  std::map<std::string, std::string> placed;
  for (const auto& [name, content] : entries) placed["m/" + name] = content;
  write_zip(path, placed);
}

}  // namespace ulp::test
