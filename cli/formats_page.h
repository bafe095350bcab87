// What `ulp formats` shows: its tables, the report with the chart of ranges, and the page docs/formats.md.
#pragma once

#include <string>
#include <vector>

#include "ulp/formats/convert.h"
#include "ulp/report/report.h"

namespace ulp::cli {

/// The traits of every number format.
report::Table traits_table();
/// The block formats: elements that share a scale.
report::Table blocks_table();
/// What each number becomes in each format: code, its bits by field, value, error.
report::Table conversions_table(const std::vector<double>& values, const std::vector<std::string>& names,
                                formats::Rounding rounding);

/// The tables and a chart of what the formats reach. `conversions` may be empty.
report::Report formats_report(const report::Table& conversions);
/// docs/formats.md.
std::string formats_markdown();

}  // namespace ulp::cli
