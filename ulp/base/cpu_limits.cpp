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

/// A line of mountinfo: where a hierarchy of control groups is mounted, and which of its groups is the
/// mount's top.
struct GroupMount {
  std::string type;         ///< cgroup2 (v2) or cgroup (v1)
  std::string controllers;  ///< of v1, among other options
  fs::path folder;
  std::string top;
};

/// A line of /proc/self/cgroup: a group that this process is in. `controllers` is empty for v2.
struct OwnGroup {
  std::string controllers, path;
};

/// What the two files say, each read once.
struct ControlGroups {
  std::vector<GroupMount> mounts;
  std::vector<OwnGroup> own;
};

/// Whether a list "cpu,cpuacct" holds the word.
bool lists_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// A path of mountinfo, where blanks and backslashes stand as their octal numbers: "/a\040b" is "/a b".
std::string decode_path(const std::string& text) {
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_octal = [&](size_t at, char most) {
      return at < text.size() && text[at] >= '0' && text[at] <= most;
    };
    if (text[i] == '\\' && is_octal(i + 1, '3') && is_octal(i + 2, '7') && is_octal(i + 3, '7')) {
      path += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      path += text[i];
    }
  }
  return path;
}

/// A line is "30 23 0:26 /top /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate".
std::vector<GroupMount> read_group_mounts(const fs::path& root) {
  std::vector<GroupMount> mounts;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string number, parent, device, top, folder, type, source, options;
    if (!(before >> number >> parent >> device >> top >> folder) || !(after >> type >> source >> options))
      continue;
    if (type != "cgroup2" && type != "cgroup") continue;
    mounts.push_back({type, options, root / fs::path(decode_path(folder)).relative_path(), decode_path(top)});
  }
  return mounts;
}

/// Lines are "0::/path" for v2 and "4:cpu,cpuacct:/path" for v1.
std::vector<OwnGroup> read_own_groups(const fs::path& root) {
  std::vector<OwnGroup> groups;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    groups.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return groups;
}

/// The mount of cgroup v2 (`controller` is empty) or of a controller of v1; null where there is none.
const GroupMount* find_mount(const ControlGroups& groups, const std::string& controller) {
  const auto found = std::ranges::find_if(groups.mounts, [&](const GroupMount& mount) {
    return controller.empty() ? mount.type == "cgroup2"
                              : mount.type == "cgroup" && lists_word(mount.controllers, controller);
  });
  return found == groups.mounts.end() ? nullptr : &*found;
}

/// The path of this process's group there.
const std::string* find_path(const ControlGroups& groups, const std::string& controller) {
  const auto found = std::ranges::find_if(groups.own, [&](const OwnGroup& group) {
    return controller.empty() ? group.controllers.empty() : lists_word(group.controllers, controller);
  });
  return found == groups.own.end() ? nullptr : &found->path;
}

/// The folders of this process's group and of those around it, the innermost first. In a container the group
/// may have a path of outside, of which only the end, or nothing, is mounted: folders that do not exist are
/// passed over by their readers.
std::vector<fs::path> group_folders(const ControlGroups& groups, const std::string& controller) {
  const GroupMount* mount = find_mount(groups, controller);
  const std::string* own = find_path(groups, controller);
  if (mount == nullptr || own == nullptr) return {};
  std::string path = *own;
  const bool below_top =
      path.starts_with(mount->top) &&
      (path.size() == mount->top.size() || mount->top.ends_with('/') || path[mount->top.size()] == '/');
  if (below_top) path.erase(0, mount->top.size());
  std::vector<fs::path> folders;
  for (fs::path below = fs::path(path).relative_path();; below = below.parent_path()) {
    folders.push_back(mount->folder / below);
    if (below.empty()) return folders;
  }
}

/// Whether this process is in groups of the same path of both controllers of v1.
bool same_group(const ControlGroups& groups, const std::string& one, const std::string& other) {
  const std::string *a = find_path(groups, one), *b = find_path(groups, other);
  return a != nullptr && b != nullptr && *a == *b;
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
  const ControlGroups groups{read_group_mounts(root), read_own_groups(root)};
  std::optional<CpuQuota> tightest;
  for (const fs::path& folder : group_folders(groups, "")) {
    const auto limit = limit_of_v2(folder);
    if (limit && (!tightest || *limit < tightest->limit)) tightest = {*limit, used_of_v2(folder)};
  }
  const std::vector<fs::path> folders = group_folders(groups, "cpu"),
                              counted = group_folders(groups, "cpuacct");
  // The two controllers are mounted together, or a process is mostly in groups of the same path.
  const bool together = counted.size() == folders.size() && same_group(groups, "cpu", "cpuacct");
  for (size_t i = 0; i < folders.size(); ++i) {
    const auto limit = limit_of_v1(folders[i]);
    if (!limit || (tightest && *limit >= tightest->limit)) continue;
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
