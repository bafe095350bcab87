#include "ulp/measure/interference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace ulp::measure {

std::optional<double> quiet_seconds(double seconds, const std::optional<CoresUsed>& cores, int threads) {
  constexpr double kTooLittle = 0.05;  // processors: ticks of 10 ms
  if (!cores || threads <= 0 || cores->used < kTooLittle) return std::nullopt;
  const double wanted = std::min<double>(threads, cores->usable);
  return seconds * std::min(1.0, cores->used / wanted);
}

std::string busy_mark(double others, const std::optional<CoresUsed>& cores,
                      const std::optional<double>& quiet) {
  const std::string text = "busy: others took " + std::to_string(std::lround(100 * others)) + " %";
  if (!cores) return text;
  char used[64], expected[64] = "";
  std::snprintf(used, sizeof used, " (%.1f of %.3g cores used", cores->used, cores->usable);
  if (quiet) {
    const bool long_ones = *quiet >= 1;
    std::snprintf(expected, sizeof expected, "; some %.2g %s when quiet", *quiet * (long_ones ? 1 : 1e3),
                  long_ones ? "s" : "ms");
  }
  return text + used + expected + ")";
}

QuietMeter::QuietMeter(UsageProbe probe) : probe_(probe ? std::move(probe) : read_cpu_usage) {}

void QuietMeter::begin() {
  begin_ = probe_();
}

void QuietMeter::end() {
  add_span(total_, begin_, probe_());
}

std::optional<double> QuietMeter::others() const {
  return share_of_others({}, total_);
}

std::optional<CoresUsed> QuietMeter::cores() const {
  if (!others()) return std::nullopt;
  const double usable =
      total_.group ? std::min<double>(total_.processors, total_.group->limit) : total_.processors;
  return CoresUsed{total_.own / total_.wall, usable};
}

}  // namespace ulp::measure
