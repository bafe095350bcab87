#include "ulp/base/cpu_limits.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include "temporary_folder.h"
#include "ulp/base/cpu_usage.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnified =
    "24 1 0:22 / /proc rw - proc proc rw\n"
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kOlder =
    "40 23 0:30 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
    "41 23 0:31 / /sys/fs/cgroup/cpuset rw shared:10 - cgroup cgroup rw,cpuset\n"
    "42 23 0:32 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpu,cpuacct\n";

/// A made-up root folder.
class CpuQuotas : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<CpuQuota> read() const { return read_cpu_quota(root_.path()); }
  double limit() const {
    const auto quota = read();
    return quota ? quota->limit : 0;
  }

  test::TemporaryFolder root_;
};

TEST_F(CpuQuotas, WithoutFilesThereIsNone) {
  EXPECT_FALSE(read());
  write("proc/self/mountinfo", kUnified);
  EXPECT_FALSE(read());
  write("proc/self/cgroup", "0::/user.slice\n");
  EXPECT_FALSE(read());
  write("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
  EXPECT_FALSE(read());
}

TEST_F(CpuQuotas, TheTightestOfTheGroupAndThoseAroundItCounts) {
  write("proc/self/mountinfo", kUnified);
  write("proc/self/cgroup", "0::/a/b/c\n");
  write("sys/fs/cgroup/a/b/c/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(limit(), 3);
  EXPECT_FALSE(read()->used);
  write("sys/fs/cgroup/a/cpu.max", "75000 50000\n");
  write("sys/fs/cgroup/a/cpu.stat", "usage_usec 2500000\nuser_usec 2000000\n");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(limit(), 1.5);
  EXPECT_DOUBLE_EQ(read()->used.value(), 2.5);
  write("sys/fs/cgroup/other/cpu.max", "1000 100000\n");
  EXPECT_DOUBLE_EQ(limit(), 1.5) << "a group that the process is not in";
}

TEST_F(CpuQuotas, TheGroupMayBeTheRootOfItsNamespace) {
  write("proc/self/mountinfo", kUnified);
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(limit(), 0.5);
}

TEST_F(CpuQuotas, AMountMayShowAPartOfTheHierarchy) {
  write("proc/self/mountinfo", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  write("sys/fs/cgroup/child/cpu.max", "100000 100000\n");
  write("proc/self/cgroup", "0::/docker/abc\n");
  EXPECT_DOUBLE_EQ(limit(), 2);
  write("proc/self/cgroup", "0::/docker/abc/child\n");
  EXPECT_DOUBLE_EQ(limit(), 1);
  write("proc/self/cgroup", "0::/docker/abcdef\n");  // not below it: only the top is known
  EXPECT_DOUBLE_EQ(limit(), 2);
}

TEST_F(CpuQuotas, PathsMayHoldBlanks) {
  write("proc/self/mountinfo",
        R"(30 23 0:26 /my\040pods/a\134b /mnt/control\040groups rw - cgroup2 cgroup rw)"
        "\n");
  write("proc/self/cgroup", "0::/my pods/a\\b/in side\n");
  write("mnt/control groups/in side/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(limit(), 1.5);
  write("mnt/control groups/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(limit(), 0.5);
}

TEST_F(CpuQuotas, Version1) {
  write("proc/self/mountinfo", kOlder);
  write("proc/self/cgroup", "9:cpuset:/x\n4:cpu,cpuacct:/docker/abc\n0::/x\n");
  const std::string outer = "sys/fs/cgroup/cpu,cpuacct/docker/", inner = outer + "abc/";
  write(inner + "cpu.cfs_quota_us", "-1\n");
  write(inner + "cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(read());
  write(inner + "cpu.cfs_quota_us", "150000\n");
  write(inner + "cpuacct.usage", "3500000000\n");
  EXPECT_DOUBLE_EQ(limit(), 1.5);
  EXPECT_DOUBLE_EQ(read()->used.value(), 3.5);
  write(outer + "cpu.cfs_quota_us", "20000\n");
  write(outer + "cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(limit(), 0.2);
}

TEST_F(CpuQuotas, ControllersOfVersion1ThatAreMountedApart) {
  write("proc/self/mountinfo",
        "41 23 0:31 / /cg/cpuacct rw - cgroup cgroup rw,cpuacct\n42 23 0:32 / /cg/cpu rw - cgroup cgroup "
        "rw,cpu\n");
  write("proc/self/cgroup", "2:cpuacct:/a\n1:cpu:/a\n");
  write("cg/cpu/a/cpu.cfs_quota_us", "100000");
  write("cg/cpu/a/cpu.cfs_period_us", "50000");
  write("cg/cpuacct/a/cpuacct.usage", "1000000000");
  EXPECT_DOUBLE_EQ(limit(), 2);
  EXPECT_DOUBLE_EQ(read()->used.value(), 1);
  write("proc/self/cgroup", "2:cpuacct:/b\n1:cpu:/a\n");
  EXPECT_DOUBLE_EQ(limit(), 2);
  EXPECT_FALSE(read()->used) << "the count is of another group";
}

TEST_F(CpuQuotas, FilesThatSayNothingAreNoQuota) {
  write("proc/self/mountinfo", std::string("nonsense\n\n - \n1 2 - cgroup2\n") + kUnified);
  write("proc/self/cgroup", "nonsense\n0::/a\n");
  for (const char* text : {"", "100000", "100000 0", "0 100000", "-5 100000", "x y", "max"}) {
    write("sys/fs/cgroup/a/cpu.max", text);
    EXPECT_FALSE(read()) << text;
  }
}

TEST(CpuLimits, ThreadsAreThoseOfTheSmallerNumberRoundedUp) {
  EXPECT_EQ(threads_for(8, std::nullopt), 8);
  EXPECT_EQ(threads_for(8, CpuQuota{.limit = 1.5}), 2);
  EXPECT_EQ(threads_for(8, CpuQuota{.limit = 2}), 2);
  EXPECT_EQ(threads_for(8, CpuQuota{.limit = 0.1}), 1);
  EXPECT_EQ(threads_for(2, CpuQuota{.limit = 64}), 2);
  EXPECT_EQ(threads_for(2, CpuQuota{.limit = 1e300}), 2);
  EXPECT_EQ(threads_for(0, std::nullopt), 1);
}

TEST(CpuLimits, TheMaskIsThatOfTheCallingThread) {
  const std::vector<bool> all = affinity_mask();
  const auto processor = static_cast<size_t>(std::ranges::find(all, true) - all.begin());
  ASSERT_LT(processor, all.size());
  std::vector<bool> pinned;
  int cores = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return;
    pinned = affinity_mask();
    cores = usable_cores();
  }).join();
  ASSERT_EQ(pinned.size(), processor + 1);
  EXPECT_EQ(std::ranges::count(pinned, true), 1);
  EXPECT_EQ(cores, 1);
  EXPECT_EQ(affinity_mask(), all);
}

TEST(CpuLimits, AtLeastOneCoreIsUsable) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), read_cpu_usage().processors);
}

}  // namespace
}  // namespace ulp
