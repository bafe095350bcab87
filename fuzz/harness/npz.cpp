// NumPy's archives. The structural changes are those of the arrays within: an archive with a wrong checksum says
// little.
#include <zip.h>

#include <cstring>
#include <string>
#include <vector>

#include "array.h"
#include "harness.h"
#include "json_mutator.h"
#include "ulp/io/npy.h"

namespace {

using ulp::fuzz::below;
using ulp::fuzz::Random;
using Bytes = std::vector<uint8_t>;

struct Array {
  std::string name;
  Bytes bytes;
};

/// The archive's entries as they are; none where it cannot be read.
std::vector<Array> entries_of(const std::filesystem::path& path) {
  constexpr uint64_t kMostBytes = 1 << 20;
  std::vector<Array> entries;
  zip_t* archive = zip_open(path.c_str(), ZIP_RDONLY, nullptr);
  if (archive == nullptr) return entries;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive, 0); ++i) {
    zip_stat_t stat;
    if (zip_stat_index(archive, static_cast<zip_uint64_t>(i), 0, &stat) != 0 || stat.size > kMostBytes)
      continue;
    zip_file_t* file = zip_fopen_index(archive, static_cast<zip_uint64_t>(i), 0);
    if (file == nullptr) continue;
    Array entry{stat.name, Bytes(stat.size)};
    if (zip_fread(file, entry.bytes.data(), stat.size) == static_cast<zip_int64_t>(stat.size)) {
      entries.push_back(std::move(entry));
    }
    zip_fclose(file);
  }
  zip_discard(archive);
  return entries;
}

/// An archive of the entries; empty where libzip refuses them.
Bytes archive_of(const std::vector<Array>& entries) {
  Bytes made;
  zip_source_t* whole = zip_source_buffer_create(nullptr, 0, 0, nullptr);
  zip_t* archive = whole == nullptr ? nullptr : zip_open_from_source(whole, ZIP_TRUNCATE, nullptr);
  if (archive == nullptr) {
    zip_source_free(whole);
    return made;
  }
  zip_source_keep(whole);
  for (const Array& entry : entries) {
    zip_source_t* source = zip_source_buffer(archive, entry.bytes.data(), entry.bytes.size(), 0);
    if (zip_file_add(archive, entry.name.c_str(), source, 0) < 0) zip_source_free(source);
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

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ulp::fuzz::MemoryFile file(data, size);
  ulp::fuzz::refused([&] {
    for (const auto& [name, array] : ulp::io::load_npz(file.path())) ulp::fuzz::read_all(array);
  });
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  Random random(seed);
  std::vector<Array> entries = entries_of(ulp::fuzz::MemoryFile(data, size).path());
  if (entries.empty() || below(random, 4) == 0) return LLVMFuzzerMutate(data, size, max_size);
  Array& entry = entries[below(random, entries.size())];
  const size_t had = entry.bytes.size();
  entry.bytes.resize(had + 64);
  entry.bytes.resize(LLVMFuzzerMutate(entry.bytes.data(), had, entry.bytes.size()));
  const Bytes made = archive_of(entries);
  if (made.empty() || made.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, made.data(), made.size());
  return made.size();
}
