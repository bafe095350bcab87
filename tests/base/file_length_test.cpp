// A file that has grown too long holds more than one idea.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;

int lines_of(const fs::path& file) {
  std::ifstream in(file);
  int lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  return lines;
}

void expect_at_most(int most, const char* folder) {
  int seen = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(ULP_SOURCE_DIR) / folder)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp" && extension != ".py") continue;
    ++seen;
    EXPECT_LE(lines_of(entry.path()), most) << entry.path() << " is too long: split it";
  }
  EXPECT_GT(seen, 0) << "no sources in " << folder;
}

TEST(FileLength, IsAtMost600LinesOfSource) {
  for (const char* folder : {"ulp", "cli", "bench", "examples", "fuzz", "python", "scripts"})
    expect_at_most(600, folder);
}

TEST(FileLength, IsAtMost800LinesOfTests) {
  expect_at_most(800, "tests");
}

}  // namespace
