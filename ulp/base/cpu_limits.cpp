#include "ulp/base/cpu_limits.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace ulp {

namespace {

namespace fs = std::filesystem;

/// A hierarchy of control groups: where it is mounted, and which of its groups is the mount's top.
struct GroupMount {
  fs::path folder;
  std::string top;
};

/// Whether a list "cpu,cpuacct" holds the word.
bool lists_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// The mount of cgroup v2 (`controller` is empty) or of a controller of v1. A line of mountinfo is
/// "30 23 0:26 /top /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate".
std::optional<GroupMount> find_group_mount(const fs::path& root, const std::string& controller) {
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string number, parent, device, top, folder, type, source, options;
    if (!(before >> number >> parent >> device >> top >> folder) || !(after >> type >> source >> options))
      continue;
    const bool found =
        controller.empty() ? type == "cgroup2" : type == "cgroup" && lists_word(options, controller);
    if (found) return GroupMount{root / fs::path(folder).relative_path(), top};
  }
  return std::nullopt;
}

/// The path of this process's group. Lines are "0::/path" for v2 and "4:cpu,cpuacct:/path" for v1.
std::optional<std::string> find_group_path(const fs::path& root, const std::string& controller) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : lists_word(controllers, controller))
      return line.substr(second + 1);
  }
  return std::nullopt;
}

/// The folders of this process's group and of those around it, the innermost first. In a container the group
/// may have a path of outside, of which only the end, or nothing, is mounted: folders that do not exist are
/// passed over by their readers.
std::vector<fs::path> group_folders(const fs::path& root, const std::string& controller) {
  const auto mount = find_group_mount(root, controller);
  auto path = find_group_path(root, controller);
  if (!mount || !path) return {};
  const bool below_top =
      path->starts_with(mount->top) &&
      (path->size() == mount->top.size() || mount->top.ends_with('/') || (*path)[mount->top.size()] == '/');
  if (below_top) path->erase(0, mount->top.size());
  std::vector<fs::path> folders;
  for (fs::path below = fs::path(*path).relative_path();; below = below.parent_path()) {
    folders.push_back(mount->folder / below);
    if (below.empty()) return folders;
  }
}

template <typename... Numbers>
bool read_numbers(const fs::path& path, Numbers&... numbers) {
  std::ifstream file(path);
  return static_cast<bool>((file >> ... >> numbers));
}

/// Of a folder of v2: "max 100000" or "150000 100000", microseconds of processor time in each period.
std::optional<double> limit_of_v2(const fs::path& folder) {
  double quota = 0, period = 0;
  if (!read_numbers(folder / "cpu.max", quota, period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

/// Of a folder of v1, where a quota of -1 is none.
std::optional<double> limit_of_v1(const fs::path& folder) {
  double quota = 0, period = 0;
  if (!read_numbers(folder / "cpu.cfs_quota_us", quota) ||
      !read_numbers(folder / "cpu.cfs_period_us", period) || quota <= 0 || period <= 0)
    return std::nullopt;
  return quota / period;
}

std::optional<double> used_of_v2(const fs::path& folder) {
  std::ifstream file(folder / "cpu.stat");
  double value = 0;
  for (std::string name; file >> name >> value;) {
    if (name == "usage_usec") return 1e-6 * value;
  }
  return std::nullopt;
}

std::optional<double> used_of_v1(const fs::path& folder) {
  double nanoseconds = 0;
  if (!read_numbers(folder / "cpuacct.usage", nanoseconds)) return std::nullopt;
  return 1e-9 * nanoseconds;
}

}  // namespace

std::optional<CpuQuota> read_cpu_quota(const fs::path& root) {
  std::optional<CpuQuota> tightest;
  for (const fs::path& folder : group_folders(root, "")) {
    const auto limit = limit_of_v2(folder);
    if (limit && (!tightest || *limit < tightest->limit)) tightest = {*limit, used_of_v2(folder)};
  }
  const std::vector<fs::path> folders = group_folders(root, "cpu"), counted = group_folders(root, "cpuacct");
  for (size_t i = 0; i < folders.size(); ++i) {
    const auto limit = limit_of_v1(folders[i]);
    if (!limit || (tightest && *limit >= tightest->limit)) continue;
    // The two controllers are mounted together, or a process is mostly in groups of the same path.
    const bool together =
        counted.size() == folders.size() && find_group_path(root, "cpu") == find_group_path(root, "cpuacct");
    tightest = {*limit, together ? used_of_v1(counted[i]) : std::nullopt};
  }
  return tightest;
}

std::vector<bool> affinity_mask() {
  for (int processors = CPU_SETSIZE; processors <= 1 << 20; processors *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(processors);
    std::vector<unsigned long> words(bytes / sizeof(unsigned long));
    auto* mask = reinterpret_cast<cpu_set_t*>(words.data());
    if (sched_getaffinity(0, bytes, mask) == 0) {
      std::vector<bool> may(static_cast<size_t>(processors));
      for (size_t i = 0; i < may.size(); ++i) may[i] = CPU_ISSET_S(i, bytes, mask);
      while (!may.empty() && !may.back()) may.pop_back();
      return may;
    }
    if (errno != EINVAL) break;  // EINVAL: the kernel's mask is longer
  }
  return {};
}

int threads_for(int processors, const std::optional<CpuQuota>& quota) {
  const double most = quota ? std::min<double>(processors, std::ceil(quota->limit)) : processors;
  return std::max(1, static_cast<int>(most));
}

int usable_cores() {
  const std::vector<bool> may = affinity_mask();
  const auto allowed = std::ranges::count(may, true);
  const int processors =
      allowed > 0 ? static_cast<int>(allowed) : static_cast<int>(std::thread::hardware_concurrency());
  return threads_for(processors, read_cpu_quota());
}

}  // namespace ulp
