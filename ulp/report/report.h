// A report of measurements: one value that becomes JSON, terminal text or one self-contained HTML page.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/report/machine.h"
#include "ulp/report/table.h"

namespace ulp::report {

/// How an axis is divided.
enum class Scale { linear, log10, log2 };

/// One axis of a chart.
struct Axis {
  std::string title = {};
  std::string unit = {};
  Scale scale = Scale::linear;
  Better better = Better::none;  ///< adds "higher is better" to the title
  std::optional<double> minimum = {}, maximum = {};

  bool operator==(const Axis&) const = default;
};

/// Points of one colour. A series keeps its colour in all charts of a report: colours follow the names.
struct Series {
  std::string name = {};
  std::vector<double> x = {};  ///< unused by bars; ranges: where each begins
  std::vector<double> y = {};  ///< not-a-number leaves a gap; ranges: where each ends
  std::vector<std::string> labels =
      {};               ///< scatter: text beside each point; bars, ranges: the category of each
  bool joined = false;  ///< scatter: a line through the points, which are not drawn themselves

  bool operator==(const Series&) const = default;
};

/// How a chart draws its series.
enum class ChartKind {
  line,       ///< y over x, joined
  step,       ///< y holds until the next x
  histogram,  ///< filled steps: y of the bin around each x; x in order and evenly spaced on its axis
  scatter,    ///< single points with labels
  bars,       ///< one group of bars per category
  ranges      ///< one row per label, a bar from x to y on the horizontal axis; series share the rows
};

/// A range of x that a line chart or histogram marks in its background.
struct Band {
  std::optional<double> from = {}, to = {};  ///< nothing: to the edge of the chart
  std::string label = {};                    ///< two short lines at the top of the range
  std::string detail = {};
  bool warn = false;  ///< a range that values should stay out of

  bool operator==(const Band&) const = default;
};

/// One chart of a report.
struct Chart {
  ChartKind kind = ChartKind::line;
  std::string title = {};
  std::string caption = {};  ///< one sentence saying what to see
  Axis x = {}, y = {};
  std::vector<Series> series = {};
  std::vector<Band> bands = {};  ///< not for bars and ranges
  /// Lines: above 0 the bold line is a centred average over 2 / (1 - smoothing) points, the raw one faint
  /// behind it.
  double smoothing = 0;

  bool operator==(const Chart&) const = default;
};

/// A result worth seeing first: {"4.6×", "int8 throughput against fp32"}.
struct Headline {
  std::string value;
  std::string label;

  bool operator==(const Headline&) const = default;
};

/// Everything that one run has to show.
struct Report {
  std::string title = {};
  std::string subtitle = {};
  std::string created = {};  ///< when, as text; see timestamp()
  std::vector<Headline> headlines = {};
  std::vector<Table> tables = {};
  std::vector<Chart> charts = {};
  std::vector<std::string> notes = {};
  std::vector<Fact> settings = {};  ///< what was run: epochs, batch size, seed
  std::vector<Fact> machine = {};   ///< see machine_facts()

  /// {"format": "ulp.report", "version": 1, ...}. Numbers round-trip exactly; those that JSON cannot write
  /// (not-a-number, infinities) become {"number": "nan"}. indent < 0 writes one line.
  ULP_API std::string to_json(int indent = 2) const;
  /// Throws FileError that names the place of what is wrong; also for a report of a newer version.
  ULP_API static Report from_json(std::string_view json);
  /// One page without references to anything outside it. Throws Error when a series or a table is malformed.
  ULP_API std::string to_html() const;
  /// Headlines, tables and notes for a terminal.
  ULP_API std::string to_text(const TextOptions& options = {}) const;

  /// Both write the whole file or none of it.
  ULP_API void write_json(const std::filesystem::path& path) const;
  ULP_API void write_html(const std::filesystem::path& path) const;

  bool operator==(const Report&) const = default;
};

/// Now, in local time: "2026-01-31 14:05 +0100".
ULP_API std::string timestamp();

}  // namespace ulp::report
