#include "ulp/io/zip_archive.h"

#include <zip.h>

#include <fstream>
#include <set>

#include "ulp/base/error.h"
#include "ulp/io/unpacked_bytes.h"

namespace ulp::io {

namespace {

namespace fs = std::filesystem;

/// What an entry is compressed by: "bzip2 (method 12)".
std::string compression(zip_uint16_t method) {
  constexpr zip_uint16_t kZstandard = 93;  // older libraries have no name for it
  const char* name = method == ZIP_CM_BZIP2  ? "bzip2"
                     : method == ZIP_CM_LZMA ? "LZMA"
                     : method == ZIP_CM_XZ   ? "xz"
                     : method == kZstandard  ? "Zstandard"
                                             : "another compression";
  return std::string(name) + " (method " + std::to_string(method) + ")";
}

/// Refuses entries of other kinds, and those whose sizes cannot be, before anything is allocated for them.
void check_entry(const zip_stat_t& stat, const std::string& name, const char* where) {
  constexpr zip_uint64_t kNeeded =
      ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  constexpr uint64_t kBestRatio = 1032;  // of deflate
  if ((stat.valid & kNeeded) != kNeeded) fail_file(where, "'", name, "' lacks its size or kind");
  if (stat.encryption_method != ZIP_EM_NONE) fail_file(where, "'", name, "' is encrypted");
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    fail_file(where, "expected an entry that is stored or deflated, got ", compression(stat.comp_method),
              " for '", name, "'");
  }
  const uint64_t ratio = stat.comp_method == ZIP_CM_STORE ? 1 : kBestRatio;
  if (stat.size / ratio > stat.comp_size) {
    fail_file(where, "'", name, "' promises ", stat.size, " bytes, more than its ", stat.comp_size,
              " can hold");
  }
}

[[noreturn]] void refuse(zip_error_t& error, const std::string& name, const char* where, const char* kind) {
  const std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  fail_file(where, "could not read '", name, "' as ", kind, ": ", reason);
}

/// No zip archive: what it is instead.
[[noreturn]] void refuse_other(const fs::path& path, uint64_t size, const char* where, const char* kind) {
  char start[4] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof start);
  const bool begins = std::string_view(start, sizeof start) == std::string_view("PK\x03\x04", sizeof start);
  fail_file(where, "expected ", kind, ", got '", path.string(), "', which ",
            size == 0 ? "is empty"
            : begins  ? "begins as a zip archive, but has no list of entries at its end: it is cut short"
                      : "does not begin as a zip archive",
            " (", size, " bytes)");
}

}  // namespace

ZipReader::ZipReader(zip* archive, const ZipEntry& entry, std::string name, const char* where)
    : name_(std::move(name)),
      where_(where),
      left_(entry.size),
      file_(zip_fopen_index(archive, entry.index, 0)) {
  if (file_ == nullptr) fail_file(where_, "could not read '", name_, "': ", zip_strerror(archive));
}

ZipReader::~ZipReader() {
  zip_fclose(file_);
}

void ZipReader::read(void* target, uint64_t bytes) {
  auto* at = static_cast<char*>(target);
  if (bytes > left_) fail_file(where_, "'", name_, "' ends early");
  left_ -= bytes;
  while (bytes > 0) {
    const zip_int64_t got = zip_fread(file_, at, bytes);
    if (got <= 0) damaged();
    at += got;
    bytes -= static_cast<uint64_t>(got);
  }
}

void ZipReader::expect_end() {
  char extra = 0;
  // libzip compares the checksum at the end of the entry.
  if (zip_fread(file_, &extra, 1) != 0) damaged();
}

void ZipReader::damaged() {
  fail_file(where_, "'", name_, "' is damaged: ", zip_file_strerror(file_));
}

ZipArchive::ZipArchive(const fs::path& path, const char* where, const char* kind)
    : name_(path.string()), where_(where) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) fail_file(where_, "expected a file, got '", name_, "'");
  std::error_code unknown;
  const uint64_t size = fs::file_size(path, unknown);
  if (unknown) fail_file(where_, "could not read '", name_, "': ", unknown.message());
  int code = 0;
  archive_ = zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code);
  if (archive_ == nullptr) {
    if (code == ZIP_ER_NOZIP) refuse_other(path, size, where_, kind);
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    refuse(error, name_, where_, kind);
  }
  list(size);
}

ZipArchive::ZipArchive(std::string_view bytes, const fs::path& name, const char* where, const char* kind)
    : name_(name.string()), where_(where) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  if (source == nullptr) refuse(error, name_, where_, kind);
  archive_ = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
  if (archive_ == nullptr) {
    zip_source_free(source);
    refuse(error, name_, where_, kind);
  }
  zip_error_fini(&error);
  list(bytes.size());
}

ZipArchive::~ZipArchive() {
  zip_discard(archive_);
}

std::string ZipArchive::label(const ZipEntry& entry) const {
  constexpr size_t kShown = 100;
  return name_ + ":" + entry.name.substr(0, kShown);
}

void ZipArchive::list(uint64_t packed) try {
  std::set<std::string> seen;
  uint64_t unpacked = 0;
  const zip_int64_t count = zip_get_num_entries(archive_, 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    if (zip_stat_index(archive_, static_cast<zip_uint64_t>(i), 0, &stat) != 0)
      fail_file(where_, "could not read entry ", i, " of '", name_, "': ", zip_strerror(archive_));
    ZipEntry entry{.name = stat.name, .index = stat.index, .size = stat.size};
    entry.stored = stat.comp_method == ZIP_CM_STORE;
    check_entry(stat, label(entry), where_);
    unpacked += stat.size;  // bounded by check_entry
    check_unpacked(where_, name_, packed, unpacked);
    if (!seen.insert(entry.name).second) fail_file(where_, "'", label(entry), "' is there twice");
    entries_.push_back(std::move(entry));
  }
} catch (...) {
  zip_discard(archive_);  // of an object that is never finished
  throw;
}

std::unique_ptr<ZipReader> ZipArchive::open(const ZipEntry& entry) const {
  return std::make_unique<ZipReader>(archive_, entry, label(entry), where_);
}

}  // namespace ulp::io
