// A table of measurements: columns with units, cells that are numbers or text; printed as plain text or
// Markdown.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::report {

/// Which direction of a measurement is good; the best value of such a column is marked.
enum class Better { none, higher, lower };

/// One column of a table.
struct Column {
  std::string name = {};
  std::string unit = {};         ///< shown in the header, never in the cells
  Better better = Better::none;  ///< direction that is good
  int decimals = -1;  ///< digits after the point; -1 chooses so that the smallest value keeps three digits

  bool operator==(const Column&) const = default;
};

/// monostate is a value that was not measured; it shows as a dash.
using Cell = std::variant<std::monostate, double, std::string>;

/// A doubt about one cell, shown beside its value: "busy: others took 38 %".
struct Mark {
  int row = 0, column = 0;
  std::string text = {};

  bool operator==(const Mark&) const = default;
};

/// A table; every row has a cell for each column.
struct Table {
  std::string title = {};
  std::string caption = {};  ///< one sentence saying what to see
  std::vector<Column> columns = {};
  std::vector<std::vector<Cell>> rows = {};
  std::vector<Mark> marks = {};  ///< at most one a cell; a column that has one shows no best value

  /// Appends a row. Throws ulp::Error unless it has one cell per column.
  ULP_API void add_row(std::vector<Cell> cells);
  /// Marks a cell of the last row. Throws ulp::Error for a column that is not there.
  ULP_API void mark_last(const std::string& column, std::string text);

  bool operator==(const Table&) const = default;
};

/// The abilities of the terminal that to_text() may use.
struct TextOptions {
  bool unicode = true;  ///< lines and dashes outside ASCII
};

/// Aligned columns, text left and numbers right, units under the names, the best value of a column marked
/// with '*', marked ones with '!'.
ULP_API std::string to_text(const Table& table, const TextOptions& options = {});

/// A Markdown (GitHub) table; the best value of a column is bold, marks stand behind their values.
ULP_API std::string to_markdown(const Table& table);

/// Cells as shown and what they are; shared by the text, Markdown and HTML forms.
struct ShownTable {
  std::vector<std::vector<std::string>> cells;  ///< [row][column]; empty for a missing value
  std::vector<std::vector<bool>> best;          ///< [row][column]
  std::vector<bool> numeric;                    ///< [column] holds numbers, and only numbers
  std::vector<std::vector<std::string>> marks;  ///< [row][column]; empty for a cell without a mark
};
/// Throws ulp::Error when a row is not as long as the header or a mark is outside of the table.
ULP_API ShownTable show(const Table& table);

}  // namespace ulp::report
