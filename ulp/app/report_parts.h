// What several reports of runs share.
#pragma once

#include <string>
#include <vector>

#include "ulp/report/report.h"

namespace ulp::app {

/// A number in a sentence, by a format of printf with one double ("%.2f points").
std::string number(const char* format, double value);

/// A table of one column, a line each.
report::Table lines_table(const char* title, const char* caption, const std::vector<std::string>& lines);

}  // namespace ulp::app
