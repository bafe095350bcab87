#include "ulp/base/cpu_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace ulp {

namespace {

constexpr double kShortestSpan = 0.1;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Sums the lines "cpu3 user nice system idle iowait irq softirq steal ..." of the processors this process
/// may use.
void read_processors(CpuUsage& usage) {
  const std::vector<bool> allowed = affinity_mask();
  std::ifstream file("/proc/stat");
  double ticks = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    if (!(words >> name) || !name.starts_with("cpu") || name.size() == 3) continue;
    const auto number = static_cast<size_t>(std::atoi(name.c_str() + 3));
    if (number >= allowed.size() || !allowed[number]) continue;
    if (!(words >> user >> nice >> system >> idle >> iowait >> irq >> softirq)) continue;
    words >> steal;  // older kernels have none
    ticks += user + nice + system + irq + softirq + steal;
    ++usage.processors;
  }
  usage.all = ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// Without a count of what the group uses, its limit says nothing of others.
void read_group(CpuUsage& usage) {
  const auto quota = read_cpu_quota();
  if (quota && quota->used) usage.group = {quota->limit, *quota->used};
}

double used_by_group(const CpuUsage& usage) {
  return usage.group ? usage.group->used : 0;
}

}  // namespace

CpuUsage read_cpu_usage() {
  CpuUsage usage;
  read_processors(usage);
  read_group(usage);
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

}  // namespace ulp
