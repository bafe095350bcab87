// Zip archives from anywhere: what they hold is listed and checked before a byte of it is unpacked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/export.h"

struct zip;
struct zip_file;

namespace ulp::io {

/// A file in an archive.
struct ZipEntry {
  std::string name;  ///< as the archive has it
  uint64_t index = 0, size = 0;
  bool stored = false;  ///< it lies in the archive as it is
};

/// The bytes of one entry, in order.
class ULP_API ZipReader {
 public:
  ZipReader(zip* archive, const ZipEntry& entry, std::string name, const char* where);
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  /// Throws FileError where fewer bytes are left.
  void read(void* target, uint64_t bytes);
  /// Throws FileError where more bytes are left, or their checksum is another one.
  void expect_end();
  uint64_t left() const { return left_; }
  const std::string& name() const { return name_; }

 private:
  [[noreturn]] void damaged();

  std::string name_;
  const char* where_;
  uint64_t left_ = 0;
  zip_file* file_ = nullptr;
};

/// An open archive. Entries are stored or deflated, not encrypted, of different names, and unpack to no more than
/// unpacked_bytes.h says.
class ULP_API ZipArchive {
 public:
  /// `kind` is what messages call such a file ("a .npz archive"), `where` their place. Throws FileError.
  ZipArchive(const std::filesystem::path& path, const char* where, const char* kind);
  /// The same of bytes, which outlive this; `name` stands for the file in messages.
  ZipArchive(std::string_view bytes, const std::filesystem::path& name, const char* where, const char* kind);
  ~ZipArchive();
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// "archive:entry", for messages.
  std::string label(const ZipEntry& entry) const;
  std::unique_ptr<ZipReader> open(const ZipEntry& entry) const;

 private:
  void list(uint64_t packed);

  std::string name_;
  const char* where_;
  zip* archive_ = nullptr;
  std::vector<ZipEntry> entries_;
};

}  // namespace ulp::io
