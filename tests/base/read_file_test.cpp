// Whole files: every byte, and what is refused by name.
#include "ulp/base/read_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "error_of.h"
#include "temporary_folder.h"

namespace {

using ulp::read_file;

TEST(ReadFile, GivesEveryByte) {
  const ulp::test::TemporaryFolder folder;
  const std::string bytes("a\0\r\n\xFF", 5);
  std::ofstream(folder / "file", std::ios::binary) << bytes;
  EXPECT_EQ(read_file("here", folder / "file"), bytes);
  EXPECT_EQ(read_file("here", folder / "file", 5), bytes);
  std::ofstream(folder / "empty").close();
  EXPECT_EQ(read_file("here", folder / "empty", 0), "");
}

TEST(ReadFile, RefusesWhatIsNoFileOrTooLarge) {
  const ulp::test::TemporaryFolder folder;
  std::ofstream(folder / "file") << "12345";
  EXPECT_ERROR(read_file("here", folder / "none"), "[here] expected a file, got '");
  EXPECT_ERROR(read_file("here", folder.path()), "expected a file");
  EXPECT_ERROR(read_file("here", "/dev/zero"), "expected a file, got '/dev/zero'");
  EXPECT_ERROR(read_file("here", folder / "file", 4), "expected at most 4 bytes in '");
  EXPECT_THROW(read_file("here", folder / "none"), ulp::FileError);
  if (::geteuid() == 0) return;  // who may read everything
  std::filesystem::permissions(folder / "file", std::filesystem::perms::none);
  EXPECT_ERROR(read_file("here", folder / "file"), "could not read '");
}

}  // namespace
