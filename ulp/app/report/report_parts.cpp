#include "ulp/app/report/report_parts.h"

#include <cstdio>

#include "ulp/measure/interference.h"

namespace ulp::app {

std::string number(const char* format, double value) {
  char text[160];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

report::Table lines_table(const char* title, const char* caption, const std::vector<std::string>& lines) {
  report::Table table{.title = title, .caption = caption, .columns = {{"what"}}, .rows = {}};
  for (const std::string& line : lines) table.add_row({line});
  return table;
}

report::Cell milliseconds(const std::optional<measure::Timing>& timing) {
  return timing ? report::Cell(1e3 * timing->median) : report::Cell();
}

void mark_busy(report::Table& table, const std::optional<measure::Timing>& timing, const char* column) {
  if (timing && measure::is_disturbed(timing->others)) table.mark_last(column, timing->mark());
}

void mark_busy_time(report::Table& table, const std::optional<measure::Timing>& timing, const char* column) {
  if (timing && measure::is_disturbed(timing->others)) table.mark_last(column, timing->time_mark());
}

}  // namespace ulp::app
