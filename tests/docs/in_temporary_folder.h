// Samples write files beside themselves; their tests work in a folder that goes away.
#pragma once

#include <filesystem>

#include "temporary_folder.h"

namespace ulp::docs {

/// Makes an empty folder the current one, until the end of its life.
class InTemporaryFolder {
 public:
  InTemporaryFolder() : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder_.path());
  }
  ~InTemporaryFolder() { std::filesystem::current_path(before_); }
  InTemporaryFolder(const InTemporaryFolder&) = delete;
  InTemporaryFolder& operator=(const InTemporaryFolder&) = delete;

 private:
  test::TemporaryFolder folder_;
  std::filesystem::path before_;
};

}  // namespace ulp::docs
