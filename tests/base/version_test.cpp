// One version: the header's, CMake's and the changelog's.
#include "ulp/version.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace {

TEST(Version, OfTheHeaderIsCMakes) {
  EXPECT_STREQ(ulp::kVersion, ULP_PROJECT_VERSION);
}

TEST(Version, IsMadeOfItsThreeNumbers) {
  std::ostringstream parts;
  parts << ULP_VERSION_MAJOR << '.' << ULP_VERSION_MINOR << '.' << ULP_VERSION_PATCH;
  EXPECT_EQ(parts.str(), ULP_VERSION);
}

TEST(Version, HasAPartOfTheChangelog) {
  std::ifstream in(ULP_SOURCE_DIR "/CHANGELOG.md");
  bool found = false;
  for (std::string line; std::getline(in, line);)
    found |= line.starts_with("## [") && line.find(ulp::kVersion) != std::string::npos;
  EXPECT_TRUE(found) << "CHANGELOG.md has no heading for " << ulp::kVersion;
}

}  // namespace
