// A watched run as tables and charts: the picture of gradients against a format's range, before and after
// loss scaling, as in "Mixed Precision Training" (Micikevicius et al., 2018), and what went wrong where.
#pragma once

#include <string>
#include <vector>

#include "ulp/amp/watch/watch_summary.h"
#include "ulp/base/export.h"
#include "ulp/report/report.h"

namespace ulp::train {

/// The results of a watch, as parts of a report.
struct WatchReport {
  std::vector<report::Table> tables;
  std::vector<report::Chart> charts;
  std::vector<std::string> notes;
};

/// Tables without rows and charts without points are left out. Gradients and ops are listed worst first, by
/// the share that is lost; at most `rows` of each.
ULP_API WatchReport watch_report(const amp::WatchSummary& summary, size_t rows = 20);

/// The gradients' exponents with the format's range marked, without the loss scale and with it.
ULP_API report::Chart gradient_chart(const amp::WatchSummary& summary);

}  // namespace ulp::train
