#include "ulp/base/atomic_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ulp/base/error.h"

namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ulp_atomic_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(AtomicFileTest, CommitReplacesTheTarget) {
  std::ofstream(folder_ / "a") << "old";
  ulp::AtomicFile file(folder_ / "a");
  file.write("new");
  EXPECT_EQ(read(folder_ / "a"), "old");
  file.commit();
  EXPECT_EQ(read(folder_ / "a"), "new");
}

TEST_F(AtomicFileTest, WithoutCommitNothingIsLeft) {
  { ulp::AtomicFile(folder_ / "a").write("half"); }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(AtomicFileTest, MissingFolderIsAnErrorThatNamesThePath) {
  try {
    ulp::AtomicFile file(folder_ / "none" / "a");
    FAIL() << "no error";
  } catch (const ulp::Error& error) {
    EXPECT_NE(std::string(error.what()).find("none/a"), std::string::npos) << error.what();
  }
}

TEST(AtomicFile, FullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP();
  // /dev/full cannot be renamed over; writing to it directly shows the error of write().
  fs::path link = fs::temp_directory_path() / ("ulp_full_" + std::to_string(::getpid()));
  fs::create_symlink("/dev/full", fs::path(link.string() + ".tmp" + std::to_string(::getpid())));
  {
    ulp::AtomicFile file(link);
    EXPECT_THROW(file.write("x"), ulp::Error);
  }
  EXPECT_FALSE(fs::exists(link));
}

}  // namespace
