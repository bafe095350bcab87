// Temporary files: no name in the folder, nothing left.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "error_of.h"
#include "temporary_folder.h"
#include "ulp/base/anonymous_file.h"

namespace {

using ulp::AnonymousFile;
using Way = AnonymousFile::Way;

/// Sees every file that gets a name in a folder.
class Names {
 public:
  explicit Names(const std::filesystem::path& folder) : notify_(::inotify_init1(IN_NONBLOCK)) {
    EXPECT_GE(::inotify_add_watch(notify_, folder.c_str(), IN_CREATE | IN_MOVED_TO), 0);
  }
  ~Names() { ::close(notify_); }
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;
  bool any() const {
    char buffer[4096];
    return ::read(notify_, buffer, sizeof buffer) > 0;
  }

 private:
  int notify_;
};

TEST(AnonymousFile, NeverHasANameWhereTheFileSystemCanDoThat) {
  const ulp::test::TemporaryFolder folder;
  const Names names(folder.path());
  {
    const AnonymousFile removed("here", folder.path().string(), Way::removed);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    EXPECT_TRUE(names.any()) << "the test sees no names";
  }
  const int able = ::open(folder.path().c_str(), O_TMPFILE | O_RDWR, 0600);
  if (able < 0) GTEST_SKIP() << "a file system without O_TMPFILE";
  ::close(able);
  const AnonymousFile file("here", folder.path().string());
  EXPECT_FALSE(names.any());
}

TEST(AnonymousFile, HoldsWhatIsMappedAfterItIsClosed) {
  const ulp::test::TemporaryFolder folder;
  for (const Way way : {Way::best, Way::removed}) {
    constexpr int64_t kBytes = 100'000;
    unsigned char* memory = nullptr;
    {
      AnonymousFile file("here", folder.path().string(), way);
      file.reserve("here", kBytes);
      memory = static_cast<unsigned char*>(file.map("here", kBytes));
      EXPECT_EQ(::write(file.descriptor(), "abc", 3), 3);
    }
    EXPECT_EQ(std::memcmp(memory, "abc", 3), 0);
    EXPECT_EQ(memory[kBytes - 1], 0);
    memory[kBytes - 1] = 7;
    EXPECT_EQ(memory[kBytes - 1], 7);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    AnonymousFile::unmap(memory, kBytes);
  }
}

TEST(AnonymousFile, LiesInTheUsualFolderWhereNoneIsNamed) {
  const ulp::test::TemporaryFolder folder;
  const char* before = std::getenv("TMPDIR");
  const std::string usual = before != nullptr ? before : "";
  ::setenv("TMPDIR", folder.path().c_str(), 1);
  EXPECT_EQ(AnonymousFile("here", "").folder(), folder.path().string());
  ::unsetenv("TMPDIR");
  EXPECT_EQ(AnonymousFile("here", "").folder(), "/tmp");
  if (before != nullptr) ::setenv("TMPDIR", usual.c_str(), 1);
}

TEST(AnonymousFile, SaysWhichFolderItDoesNotGetAndWhatHasNoRoom) {
  EXPECT_ERROR(AnonymousFile("here", "/no/such/folder"),
               "[here] expected a folder for temporary files, got '/no/such/folder': No such file");
  EXPECT_ERROR(AnonymousFile("here", "/no/such/folder", Way::removed), "No such file");
  AnonymousFile file("here", "");
  EXPECT_ERROR(file.reserve("here", int64_t{1} << 60), "expected a folder with room for");
}

}  // namespace
