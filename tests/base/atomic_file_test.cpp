#include "ulp/base/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "error_of.h"
#include "temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using ulp::AtomicFile;

std::string read(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

void write_whole(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

struct stat status_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status;
}

mode_t mode_of(const fs::path& path) {
  return status_of(path).st_mode & 07777u;
}

class AtomicFileTest : public ::testing::Test {
 protected:
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_.path()), {}));
  }
  fs::path at(const std::string& name) const { return folder_ / name; }

  /// A process that begins to write the target and is killed.
  static void write_and_die(const fs::path& target) {
    const pid_t child = ::fork();
    if (child == 0) {
      AtomicFile file(target);
      file.write("half");
      ::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }

  ulp::test::TemporaryFolder folder_;
};

TEST_F(AtomicFileTest, CommitReplacesTheTarget) {
  std::ofstream(at("a")) << "old";
  AtomicFile file(at("a"));
  file.write("new");
  EXPECT_EQ(read(at("a")), "old");
  file.commit();
  EXPECT_EQ(read(at("a")), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, WithoutCommitNothingIsLeft) {
  { AtomicFile(at("a")).write("half"); }
  EXPECT_EQ(files(), 0u);
}

TEST_F(AtomicFileTest, PathsWithoutAFileAreErrorsThatNameThem) {
  EXPECT_ERROR(AtomicFile(at("none") / "a"), "none/a': No such file");
  EXPECT_ERROR(AtomicFile(at("none") / ""), "No such file");
  EXPECT_ERROR(AtomicFile(""), "''");
  fs::create_directory(at("folder"));
  EXPECT_ERROR(AtomicFile(at("folder")), "folder': Is a directory");
  fs::create_symlink("circle", at("circle"));
  EXPECT_ERROR(AtomicFile(at("circle")), "circle': ");
  EXPECT_EQ(files(), 2u);
}

TEST_F(AtomicFileTest, NamesMayBeAsLongAsTheSystemAllows) {
  const std::string name(255, 'n');
  write_whole(at(name), "text");
  EXPECT_EQ(read(at(name)), "text");
}

TEST_F(AtomicFileTest, ModeAndOwnerOfTheTargetStay) {
  for (const mode_t mode : {0600u, 0640u, 0755u}) {
    std::ofstream(at("a")) << "old";
    ASSERT_EQ(::chmod(at("a").c_str(), mode), 0);
    if (::geteuid() == 0) {  // others may not give files away
      ASSERT_EQ(::chown(at("a").c_str(), 1234, 5678), 0);
    }
    const struct stat before = status_of(at("a"));
    write_whole(at("a"), "new");
    EXPECT_EQ(read(at("a")), "new");
    EXPECT_EQ(mode_of(at("a")), mode);
    EXPECT_EQ(status_of(at("a")).st_uid, before.st_uid);
    EXPECT_EQ(status_of(at("a")).st_gid, before.st_gid);
    fs::remove(at("a"));
  }
}

TEST_F(AtomicFileTest, LinksStayAndTheirTargetsAreWritten) {
  fs::create_directory(at("deep"));
  std::ofstream(at("deep") / "a") << "old";
  fs::create_symlink(fs::path("deep") / "a", at("first"));
  fs::create_symlink("first", at("second"));
  write_whole(at("second"), "new");
  EXPECT_TRUE(fs::is_symlink(at("second")));
  EXPECT_TRUE(fs::is_symlink(at("first")));
  EXPECT_FALSE(fs::is_symlink(at("deep") / "a"));
  EXPECT_EQ(read(at("deep") / "a"), "new");

  fs::create_symlink(at("deep") / "missing", at("dangling"));
  write_whole(at("dangling"), "made");
  EXPECT_TRUE(fs::is_symlink(at("dangling")));
  EXPECT_EQ(read(at("deep") / "missing"), "made");
}

TEST_F(AtomicFileTest, PipesAndDevicesAreWrittenToAndStay) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  std::string received;
  std::thread reader([&] { received = read(at("pipe")); });
  write_whole(at("pipe"), "through the pipe");
  reader.join();
  EXPECT_EQ(received, "through the pipe");
  EXPECT_TRUE(fs::is_fifo(at("pipe")));

  fs::create_symlink("/dev/null", at("null"));
  write_whole(at("null"), "gone");
  EXPECT_TRUE(fs::is_symlink(at("null")));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(files(), 2u);
}

TEST_F(AtomicFileTest, AFullDiskIsAnErrorThatSaysSo) {
  if (!fs::exists("/dev/full")) GTEST_SKIP();
  fs::create_symlink("/dev/full", at("full"));
  AtomicFile file(at("full"));
  EXPECT_ERROR(file.write("x"), "could not write '" + at("full").string() + "': No space left on device");
}

TEST_F(AtomicFileTest, WhatADescriptorHasOpenIsWrittenToAndNotReplaced) {
  std::ofstream(at("log")) << "kept ";
  const int log = ::open(at("log").c_str(), O_WRONLY | O_APPEND);
  write_whole("/proc/self/fd/" + std::to_string(log), "new");
  EXPECT_EQ(::write(log, " later", 6), 6);
  ::close(log);
  EXPECT_EQ(read(at("log")), "kept new later");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, NamesThatOthersPutThereAreNotFollowed) {
  std::ofstream(at("victim")) << "whole";
  fs::create_symlink("victim", at("a.tmp" + std::to_string(::getpid())));
  write_whole(at("a"), "new");
  EXPECT_EQ(read(at("victim")), "whole");
  EXPECT_EQ(read(at("a")), "new");
}

TEST_F(AtomicFileTest, ThreadsMayWriteOneTarget) {
  const std::string text(100000, 'x');
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) write_whole(at("a"), std::to_string(i) + text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(read(at("a")).substr(1), text);
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, WhatAKilledProcessLeftIsRemoved) {
  write_and_die(at("a"));
  write_and_die(at("a"));
  write_and_die(at("b"));
  ASSERT_FALSE(fs::exists(at("a")));
  ASSERT_GE(files(), 2u);
  write_whole(at("a"), "new");
  EXPECT_EQ(read(at("a")), "new");
  EXPECT_EQ(files(), 2u) << "what was begun for another target stays";
  write_whole(at("b"), "new");
  EXPECT_EQ(files(), 2u);
}

TEST_F(AtomicFileTest, WhatIsStillWrittenIsNotTakenForStale) {
  std::optional<AtomicFile> slow;
  slow.emplace(at("a"));
  slow->write("slow");
  write_whole(at("a"), "fast");
  EXPECT_EQ(read(at("a")), "fast");
  slow->commit();
  EXPECT_EQ(read(at("a")), "slow");
  EXPECT_EQ(files(), 1u);
}

}  // namespace
