#include "ulp/base/cpu_usage.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace ulp {

namespace {

namespace fs = std::filesystem;

constexpr double kShortestSpan = 0.1;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Sums the lines "cpu3 user nice system idle iowait irq softirq steal ..." of the processors this process
/// may use.
void read_processors(CpuUsage& usage) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::ifstream file("/proc/stat");
  double ticks = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    if (!(words >> name) || !name.starts_with("cpu") || name.size() == 3) continue;
    const int number = std::atoi(name.c_str() + 3);
    if (number >= CPU_SETSIZE || !CPU_ISSET(number, &allowed)) continue;
    if (!(words >> user >> nice >> system >> idle >> iowait >> irq >> softirq)) continue;
    words >> steal;  // older kernels have none
    ticks += user + nice + system + irq + softirq + steal;
    ++usage.processors;
  }
  usage.all = ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// "max 100000" or "150000 100000": microseconds of processor time in each period.
std::optional<double> read_limit(const fs::path& folder) {
  std::ifstream file(folder / "cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> read_used(const fs::path& folder) {
  std::ifstream file(folder / "cpu.stat");
  double value = 0;
  for (std::string name; file >> name >> value;) {
    if (name == "usage_usec") return 1e-6 * value;
  }
  return std::nullopt;
}

/// The group of this process and those around it; the tightest limit counts.
void read_groups(CpuUsage& usage) {
  std::ifstream file("/proc/self/cgroup");
  std::string path;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) path = line.substr(4);
  }
  const fs::path root = "/sys/fs/cgroup";
  for (fs::path folder = root / path;; folder = folder.parent_path()) {
    const auto limit = read_limit(folder);
    const auto used = limit ? read_used(folder) : std::nullopt;
    if (used && (!usage.group || *limit < usage.group->limit)) usage.group = {*limit, *used};
    if (folder == root || !folder.has_relative_path()) return;
  }
}

double used_by_group(const CpuUsage& usage) {
  return usage.group ? usage.group->used : 0;
}

}  // namespace

CpuUsage read_cpu_usage() {
  CpuUsage usage;
  read_processors(usage);
  read_groups(usage);
  rusage self{};
  if (getrusage(RUSAGE_SELF, &self) == 0) usage.own = seconds(self.ru_utime) + seconds(self.ru_stime);
  usage.wall = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return usage;
}

std::optional<double> share_of_others(const CpuUsage& before, const CpuUsage& after) {
  const double wall = after.wall - before.wall;
  if (after.processors <= 0 || wall < kShortestSpan) return std::nullopt;
  const double processors = after.processors;
  const double own = after.own - before.own;
  const double usable = after.group ? std::min(processors, after.group->limit) : processors;
  const double free_for_others = (processors - usable) * wall;
  double taken = after.all - before.all - own - free_for_others;
  if (after.group) taken = std::max(taken, used_by_group(after) - used_by_group(before) - own);
  return std::clamp(taken / (usable * wall), 0.0, 1.0);
}

void add_span(CpuUsage& sum, const CpuUsage& before, const CpuUsage& after) {
  sum.wall += after.wall - before.wall;
  sum.all += after.all - before.all;
  sum.own += after.own - before.own;
  sum.processors = after.processors;
  if (after.group) {
    const double used = used_by_group(sum) + after.group->used - used_by_group(before);
    sum.group = {after.group->limit, used};
  }
}

int usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int cores = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0
                        ? CPU_COUNT(&allowed)
                        : static_cast<int>(std::thread::hardware_concurrency());
  CpuUsage usage;
  read_groups(usage);
  const double limit = usage.group ? std::max(usage.group->limit, 1.0) : cores;
  return std::max(1, static_cast<int>(std::lround(std::min<double>(cores, limit))));
}

}  // namespace ulp
