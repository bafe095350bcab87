// A number that may change along a run: the weight of a loss, its temperature.
#pragma once

#include <optional>
#include <string>

#include "ulp/base/export.h"

namespace ulp::distill {

/// `from` until the share `begin` of the run, `to` from the share `end` on, linear between.
struct ULP_API WeightSchedule {
  static constexpr const char* kExpected = "a number, FROM>TO or FROM>TO:BEGIN-END with shares of the run";

  double from = 1, to = 1;
  double begin = 0, end = 1;

  /// A number that stays.
  static WeightSchedule constant(double value) { return {value, value}; }
  bool is_constant() const { return from == to; }
  /// At a share of the run in [0, 1].
  double at(double share) const;
  /// "4", "1000>0", "8>1:0.2-0.9".
  std::string text() const;
  static std::optional<WeightSchedule> from_text(const std::string& text);
  bool operator==(const WeightSchedule&) const = default;
};

}  // namespace ulp::distill
