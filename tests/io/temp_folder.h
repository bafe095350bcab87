// A folder of one test's own, removed afterwards.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "ulp/base/error.h"

class TempFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("ulp_io_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path at(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(at(name), std::ios::binary) << content;
  }
  std::string read(const std::string& name) const {
    std::ostringstream out;
    out << std::ifstream(at(name), std::ios::binary).rdbuf();
    return out.str();
  }

  std::filesystem::path folder_;
};

/// Expects `action` to throw a FileError whose text holds `what`.
template <typename Action>
void expect_file_error(const std::string& what, Action&& action) {
  try {
    action();
    ADD_FAILURE() << "accepted; expected a refusal with: " << what;
  } catch (const ulp::FileError& error) {
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}
