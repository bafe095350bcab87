// What several reports of runs share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ulp/measure/measure.h"
#include "ulp/report/report.h"

namespace ulp::app {

inline constexpr double kMiB = 1 << 20;

/// A number in a sentence, by a format of printf with one double ("%.2f points").
std::string number(const char* format, double value);

/// A table of one column, a line each.
report::Table lines_table(const char* title, const char* caption, const std::vector<std::string>& lines);

/// The median in milliseconds, or an empty cell.
report::Cell milliseconds(const std::optional<measure::Timing>& timing);
/// Marks the cell of the last row where others took the processors meanwhile. mark_busy_time is for a column
/// of times and says what a quiet machine would take.
void mark_busy(report::Table& table, const std::optional<measure::Timing>& timing, const char* column);
void mark_busy_time(report::Table& table, const std::optional<measure::Timing>& timing, const char* column);

}  // namespace ulp::app
