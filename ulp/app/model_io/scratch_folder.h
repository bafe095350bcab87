// A folder for files that are needed for a while. Internal to the room.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"

namespace ulp::app {

/// Goes away with what is in it, after Ctrl-C too.
class ScratchFolder {
 public:
  /// `name` begins the folder's. Throws ulp::Error where none can be made.
  explicit ScratchFolder(const std::string& name) {
    std::string made = (std::filesystem::temp_directory_path() / (name + "_XXXXXX")).string();
    if (::mkdtemp(made.data()) == nullptr)
      fail("app.ScratchFolder", "expected a folder like '", made, "', could not make one");
    path_ = made;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  PollsInterrupts polls_;
  std::filesystem::path path_;
};

}  // namespace ulp::app
