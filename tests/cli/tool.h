// Runs the tool as a user would and keeps what it printed.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "npy_file.h"
#include "temporary_folder.h"

namespace ulp::test {

struct Outcome {
  int code = -1;  ///< exit code; 128 + n for signal n
  std::string out, err;
};

/// A folder of its own, removed at the end.
class Workshop {
 public:
  const std::filesystem::path& folder() const { return folder_.path(); }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

  /// Runs `ulp ARGS` in the folder. Where a shell would only split ARGS into words, it is a copy of a
  /// process of the tool that has loaded its libraries (served.h): the same main(), 0.1 s sooner.
  /// ULP_TEST_SERVER=off in the environment starts the program each time.
  Outcome ulp(const std::string& args) const;
  /// Starts the program for `ulp ARGS` in the folder through the shell; `before` stands in front of it
  /// ("ulimit -f 8;").
  Outcome started(const std::string& args, const std::string& before = "") const;
  /// Starts `ulp ARGS` in the background, output thrown away; `before` stands in front of it ("TMPDIR=here
  /// ").
  pid_t start(const std::string& args, const std::string& before = "") const;
  /// start() as ulp() starts it: main() begins at once.
  pid_t start_copy(const std::string& args) const;
  /// Waits for it and returns its code as Outcome does.
  static int wait(pid_t process);

  /// Writes the four IDX files of a small data set whose classes can be told apart.
  void make_data(const std::string& name, int train_images = 256, int test_images = 64) const;
  /// Writes x.npy and y.npy, 200 rows of three floats; the class is the largest one.
  void make_rows() const;
  /// Makes the data set "data" and m.safetensors, a LeNet-5 that knows it.
  void train_lenet5() const;

 private:
  /// With what the call printed.
  Outcome outcome(int code) const;

  TemporaryFolder folder_;
};

/// Tests that share a workshop with a trained LeNet-5 (m.safetensors) and its data; made once for a suite.
class WithLeNet5 : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shop_ = new Workshop;
    shop_->train_lenet5();
  }
  static void TearDownTestSuite() { delete std::exchange(shop_, nullptr); }
  static Workshop* shop_;
};

/// An error is one line that starts with "ulp: ", nothing on stdout.
void expect_error(const Outcome& outcome, int code, const std::string& says);

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& bytes);
/// The bytes that two hexadecimal digits each stand for.
std::string bytes_of_hex(const std::string& digits);

}  // namespace ulp::test
