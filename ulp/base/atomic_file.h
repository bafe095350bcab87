// Writing a file so that its name never holds half of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "ulp/base/export.h"

namespace ulp {

/// Writes to a file of a random name in the target's folder, which takes the target's place on commit(). An
/// AtomicFile that is destroyed without commit() removes what it wrote. What a killed process left is removed
/// by the next AtomicFile of the same target; a file that another one still writes (it is locked) stays.
///
/// A target that is a link stays one: the file that it leads to is written. A file that is replaced keeps its
/// mode and, where the process may set it, its owner. Devices and pipes are written to directly, and what a
/// descriptor has open ("/dev/stdout", "/dev/fd/3") is appended to. Every failure (no folder, no permission,
/// disk full) throws ulp::Error with the path.
///
/// Locks of some network file systems hold on one host only: there, two hosts must not write one target at
/// once.
class ULP_API AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(const std::string& text) { write(text.data(), text.size()); }
  /// Flushes to the disk, renames and closes, and flushes the folder, too.
  void commit();

 private:
  /// Attributes that the new file takes over from the one that it replaces.
  struct Attributes {
    uint32_t mode, owner, group;
  };

  void open_temporary();
  void keep_attributes() const;
  [[noreturn]] void fail_with(const char* doing) const;

  std::filesystem::path target_;     // as the caller named it
  std::filesystem::path place_;      // the file that is replaced: the target without links
  std::filesystem::path temporary_;  // empty where the target is written to directly
  std::optional<Attributes> kept_;   // of a target that exists
  int descriptor_ = -1;
};

}  // namespace ulp
