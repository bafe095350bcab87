#include "ulp/measure/quietness.h"

#include <cmath>
#include <utility>

namespace ulp::measure {

std::string busy_mark(double others) {
  return "busy: others took " + std::to_string(std::lround(100 * others)) + " %";
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

}  // namespace ulp::measure
