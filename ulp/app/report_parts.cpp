#include "ulp/app/report_parts.h"

#include <cstdio>

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

}  // namespace ulp::app
