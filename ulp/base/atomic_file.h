// Writing a file so that its name never holds half of it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "ulp/base/export.h"

namespace ulp {

/// Writes beside the target and renames over it on commit(); an AtomicFile that is destroyed without commit()
/// removes what it wrote. Every failure (no folder, no permission, disk full) throws ulp::Error with the
/// path.
class ULP_API AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(const std::string& text) { write(text.data(), text.size()); }
  /// Flushes to the disk, closes and renames.
  void commit();

 private:
  [[noreturn]] void fail_with(const char* doing) const;

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

}  // namespace ulp
