// Describes the machine that a measurement was taken on, for the foot of a report.
#pragma once

#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::report {

/// A name and what it is.
struct Fact {
  std::string name;
  std::string value;

  bool operator==(const Fact&) const = default;
};

/// Processor, cores this process may use, instruction-set extensions that matter here, memory, system,
/// compiler and library versions. Reads /proc and /etc; a fact that cannot be read is left out.
ULP_API std::vector<Fact> machine_facts();

}  // namespace ulp::report
