// Temporary files that nobody sees and that nothing is left of.
#pragma once

#include <cstdint>
#include <string>

#include "ulp/base/export.h"

namespace ulp {

/// The folder itself; for an empty one TMPDIR, or /tmp.
ULP_API std::string usual_folder(const std::string& folder);

/// A file of a folder without a name there, opened for reading and writing: its room is given back when it is
/// closed,
/// unmapped, or when the process ends, however that happens (SIGKILL too).
class ULP_API AnonymousFile {
 public:
  /// How it comes to have no name.
  enum class Way {
    best,    ///< never has one (O_TMPFILE) where the file system can do that
    removed  ///< has one until it is removed at once, as on file systems that cannot
  };

  /// In usual_folder(folder). Throws ulp::FileError `[where] expected a folder for temporary files, ...`.
  explicit AnonymousFile(const char* where, const std::string& folder, Way way = Way::best);
  ~AnonymousFile();
  AnonymousFile(const AnonymousFile&) = delete;
  AnonymousFile& operator=(const AnonymousFile&) = delete;

  int descriptor() const { return descriptor_; }
  const std::string& folder() const { return folder_; }
  /// Makes room for so many bytes, all zeros, so that none lacks later. Throws ulp::FileError where there is
  /// none.
  void reserve(const char* where, int64_t bytes);
  /// All of its first `bytes` > 0 as memory, which outlives the file; unmap() lets it go. Throws
  /// ulp::FileError.
  void* map(const char* where, int64_t bytes) const;
  static void unmap(void* memory, int64_t bytes);

 private:
  std::string folder_;
  int descriptor_;
};

}  // namespace ulp
