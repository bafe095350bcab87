// Measured peaks as tables.
#pragma once

#include "ulp/base/export.h"
#include "ulp/measure/peaks/peaks.h"
#include "ulp/report/table.h"

namespace ulp::app {

/// "Arithmetic": a row for each loop, with one thread and with all where both were measured (`one` may be
/// null).
ULP_API report::Table math_table(const measure::Peaks& all, const measure::Peaks* one = nullptr);

/// "Memory": a row for each level, a column for each pass.
ULP_API report::Table memory_table(const measure::Peaks& all, const measure::Peaks* one = nullptr);

}  // namespace ulp::app
