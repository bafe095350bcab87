// A folder of one test's own, for every test.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace ulp::test {

/// An empty folder under the system's temporary one; removed at the end with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    constexpr size_t kDrawn = 6;  // characters at the end that mkdtemp replaces; it wants them to be X
    std::string name =
        (std::filesystem::temp_directory_path() / "ulp_test_").string() + std::string(kDrawn, 'X');
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace ulp::test
