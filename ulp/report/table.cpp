#include "ulp/report/table.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/report/format.h"

namespace ulp::report {
namespace {

// Digits after the point so that the smallest value keeps three significant ones; -1 (each value by itself)
// when the column spans so much that the largest would trail needless digits.
int column_decimals(const Table& table, size_t column) {
  if (table.columns[column].decimals >= 0) return table.columns[column].decimals;
  double smallest = INFINITY, largest = 0;
  bool whole = true;
  for (const auto& row : table.rows) {
    const double* value = std::get_if<double>(&row[column]);
    if (value == nullptr || !std::isfinite(*value) || *value == 0) continue;
    smallest = std::min(smallest, std::fabs(*value));
    largest = std::max(largest, std::fabs(*value));
    whole = whole && std::fabs(*value - std::round(*value)) < 1e-9;
  }
  if (whole) return 0;
  if (largest / smallest > 1e4) return -1;
  return std::clamp(2 - static_cast<int>(std::floor(std::log10(smallest))), 0, 8);
}

bool has_mark(const Table& table, size_t column) {
  return std::any_of(table.marks.begin(), table.marks.end(),
                     [&](const Mark& mark) { return mark.column == static_cast<int>(column); });
}

void mark_best(const Table& table, size_t column, ShownTable& shown) {
  const Better better = table.columns[column].better;
  if (better == Better::none || has_mark(table, column)) return;
  const double sign = better == Better::higher ? 1 : -1;
  double best = -INFINITY;
  size_t best_row = 0;
  int count = 0;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const double* value = std::get_if<double>(&table.rows[row][column]);
    if (value == nullptr || !std::isfinite(*value)) continue;
    ++count;
    if (sign * *value > best) {
      best = sign * *value;
      best_row = row;
    }
  }
  if (count < 2) return;
  // Values that read the same are equally good to the reader.
  for (size_t row = 0; row < table.rows.size(); ++row) {
    shown.best[row][column] = std::holds_alternative<double>(table.rows[row][column]) &&
                              shown.cells[row][column] == shown.cells[best_row][column];
  }
}

/// What the marks say, each text once and the words they begin with in common said once:
/// "busy: others took 38 %, 41 %".
std::string marks_line(const Table& table) {
  std::vector<std::string> texts;
  for (const Mark& mark : table.marks) {
    const std::string text = clean_line(mark.text);
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
  }
  std::string line = texts.front();
  size_t common = line.size();
  for (const std::string& text : texts) {
    const auto ends = std::mismatch(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(common),
                                    text.begin(), text.end());
    common = static_cast<size_t>(ends.first - line.begin());
  }
  const size_t space = common == 0 ? std::string::npos : line.rfind(' ', common - 1);
  const size_t words = space == std::string::npos ? 0 : space + 1;
  for (size_t i = 1; i < texts.size(); ++i) line += ", " + texts[i].substr(words);
  return line;
}

void place_marks(const Table& table, ShownTable& shown) {
  shown.marks.assign(table.rows.size(), std::vector<std::string>(table.columns.size()));
  for (const Mark& mark : table.marks) {
    if (mark.row < 0 || mark.row >= static_cast<int>(table.rows.size()) || mark.column < 0 ||
        mark.column >= static_cast<int>(table.columns.size())) {
      fail("report.table", "expected marks inside of '", table.title, "', got one at row ", mark.row,
           ", column ", mark.column);
    }
    shown.marks[static_cast<size_t>(mark.row)][static_cast<size_t>(mark.column)] = clean_line(mark.text);
  }
}

void pad(std::string& out, const std::string& text, int width, bool right) {
  const std::string space(static_cast<size_t>(std::max(0, width - display_width(text))), ' ');
  out += right ? space + text : text + space;
}

// The words of a header broken into lines no wider than `width` (one word may be).
std::vector<std::string> wrap(const std::string& text, int width) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!lines.empty() && display_width(lines.back()) + 1 + display_width(word) <= width) {
      lines.back() += " " + word;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

int longest(const std::vector<std::string>& lines) {
  int width = 0;
  for (const auto& line : lines) width = std::max(width, display_width(line));
  return width;
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string escape_markdown(const std::string& text) {
  std::string out;
  for (const char c : clean_line(text)) {
    if (std::string_view("\\|*_`<>[]").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Cells with their mark, and header lines, all measured: what to_text lays out.
struct MeasuredCells {
  std::vector<std::vector<std::string>> cells;
  std::vector<std::vector<std::string>> headers;
  std::vector<int> widths;
  size_t header_lines = 0;
  bool any_best = false;
};

MeasuredCells lay_out(const Table& table, const ShownTable& shown, const TextOptions& options) {
  constexpr int kMinimumHeader = 9;
  MeasuredCells out{shown.cells, {}, {}, 0, false};
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const Column& column = table.columns[c];
    const bool marks = (shown.numeric[c] && column.better != Better::none) || has_mark(table, c);
    int width = 1;
    for (size_t r = 0; r < out.cells.size(); ++r) {
      std::string& cell = out.cells[r][c];
      if (cell.empty()) cell = options.unicode ? "–" : "-";
      if (marks) cell += !shown.marks[r][c].empty() ? "!" : shown.best[r][c] ? "*" : " ";
      out.any_best = out.any_best || shown.best[r][c];
      width = std::max(width, display_width(cell));
    }
    auto lines = wrap(clean_line(column.name), std::max(width, kMinimumHeader));
    if (!column.unit.empty()) lines.push_back("(" + clean_line(column.unit) + ")");
    if (marks) {
      for (auto& line : lines) line += " ";
    }
    out.widths.push_back(std::max(width, longest(lines)));
    out.header_lines = std::max(out.header_lines, lines.size());
    out.headers.push_back(std::move(lines));
  }
  return out;
}

}  // namespace

void Table::add_row(std::vector<Cell> cells) {
  if (cells.size() != columns.size()) {
    fail("report.table", "expected a row of ", columns.size(), " cells in '", title, "', got ", cells.size());
  }
  rows.push_back(std::move(cells));
}

void Table::mark_last(const std::string& column, std::string text) {
  for (size_t c = 0; c < columns.size() && !rows.empty(); ++c) {
    if (columns[c].name != column) continue;
    marks.push_back({static_cast<int>(rows.size()) - 1, static_cast<int>(c), std::move(text)});
    return;
  }
  fail("report.table", "expected a row and a column '", column, "' to mark in '", title, "', got none");
}

ShownTable show(const Table& table) {
  const size_t columns = table.columns.size();
  for (const auto& row : table.rows) {
    if (row.size() != columns) {
      fail("report.table", "expected rows of ", columns, " cells in '", table.title, "', got one of ",
           row.size());
    }
  }
  ShownTable shown;
  shown.cells.assign(table.rows.size(), std::vector<std::string>(columns));
  shown.best.assign(table.rows.size(), std::vector<bool>(columns, false));
  shown.numeric.assign(columns, false);
  place_marks(table, shown);
  for (size_t c = 0; c < columns; ++c) {
    const int decimals = column_decimals(table, c);
    bool numbers = false, text = false;
    for (size_t r = 0; r < table.rows.size(); ++r) {
      const Cell& cell = table.rows[r][c];
      if (const auto* value = std::get_if<double>(&cell)) {
        shown.cells[r][c] = format_number(*value, decimals);
        numbers = true;
      } else if (const auto* words = std::get_if<std::string>(&cell)) {
        shown.cells[r][c] = escape_controls(*words);
        text = true;
      }
    }
    shown.numeric[c] = numbers && !text;
    mark_best(table, c, shown);
  }
  return shown;
}

std::string to_text(const Table& table, const TextOptions& options) {
  const ShownTable shown = show(table);
  const MeasuredCells layout = lay_out(table, shown, options);
  std::string out;
  if (!table.title.empty()) out += clean_line(table.title) + "\n\n";
  for (size_t line = 0; line < layout.header_lines; ++line) {
    std::string text;
    for (size_t c = 0; c < table.columns.size(); ++c) {
      const auto& header = layout.headers[c];
      const size_t above = layout.header_lines - header.size();
      if (c > 0) text += "  ";
      pad(text, line < above ? std::string() : header[line - above], layout.widths[c], shown.numeric[c]);
    }
    out += trimmed(text);
  }
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (c > 0) out += "  ";
    for (int i = 0; i < layout.widths[c]; ++i) out += options.unicode ? "─" : "-";
  }
  out += "\n";
  for (const auto& row : layout.cells) {
    std::string text;
    for (size_t c = 0; c < row.size(); ++c) {
      if (c > 0) text += "  ";
      pad(text, row[c], layout.widths[c], shown.numeric[c]);
    }
    out += trimmed(text);
  }
  if (layout.any_best) out += "* best of the column\n";
  if (!table.marks.empty()) out += "! " + marks_line(table) + "\n";
  if (!table.caption.empty()) out += clean_line(table.caption) + "\n";
  return out;
}

std::string to_markdown(const Table& table) {
  const ShownTable shown = show(table);
  std::string out = "|", rule = "|";
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const Column& column = table.columns[c];
    out += " " + escape_markdown(column.name) +
           (column.unit.empty() ? "" : " (" + escape_markdown(column.unit) + ")") + " |";
    rule += shown.numeric[c] ? " ---: |" : " --- |";
  }
  out += "\n" + rule + "\n";
  for (size_t r = 0; r < shown.cells.size(); ++r) {
    out += "|";
    for (size_t c = 0; c < table.columns.size(); ++c) {
      const std::string cell = shown.cells[r][c].empty() ? "–" : escape_markdown(shown.cells[r][c]);
      const std::string mark =
          shown.marks[r][c].empty() ? "" : " (" + escape_markdown(shown.marks[r][c]) + ")";
      out += (shown.best[r][c] ? " **" + cell + "**" : " " + cell) + mark + " |";
    }
    out += "\n";
  }
  return out;
}

}  // namespace ulp::report
