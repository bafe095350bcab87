#include "ulp/report/report.h"

#include <algorithm>
#include <ctime>

#include "ulp/report/format.h"

namespace ulp::report {

std::string Report::to_text(const TextOptions& options) const {
  std::string out = clean_line(title) + "\n";
  if (!subtitle.empty()) out += clean_line(subtitle) + "\n";
  for (const Table& table : tables) out += "\n" + report::to_text(table, options);
  if (!headlines.empty()) out += "\n";
  int width = 0;
  for (const Headline& h : headlines) width = std::max(width, display_width(clean_line(h.value)));
  for (const Headline& h : headlines) {
    const std::string value = clean_line(h.value);
    out += std::string(static_cast<size_t>(width - display_width(value)), ' ') + value + "  " +
           clean_line(h.label) + "\n";
  }
  if (!notes.empty()) out += "\n";
  for (const std::string& note : notes) out += "- " + clean_line(note) + "\n";
  return out;
}

std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M %z", &local);
  return text;
}

}  // namespace ulp::report
