#include "ulp/app/bench/peak_tables.h"

#include <algorithm>

#include "ulp/report/format.h"

namespace ulp::app {

namespace {

using report::Better;

std::string threads_text(const measure::Peaks& peaks) {
  return std::to_string(peaks.threads) + (peaks.threads == 1 ? " thread" : " threads");
}

std::vector<const measure::Peaks*> measured(const measure::Peaks& all, const measure::Peaks* one) {
  return one == nullptr || one->threads == all.threads ? std::vector{&all} : std::vector{one, &all};
}

void mark_busy_peaks(report::Table& table, const measure::Peaks& peaks, const std::string& column) {
  if (measure::is_disturbed(peaks.others)) table.mark_last(column, measure::busy_mark(*peaks.others));
}

}  // namespace

report::Table math_table(const measure::Peaks& all, const measure::Peaks* one) {
  const std::vector<const measure::Peaks*> columns = measured(all, one);
  report::Table table{
      .title = "Arithmetic",
      .caption =
          "Independent chains in registers; the best of many short runs. A multiplication and its "
          "addition are two operations.",
      .columns = {{"numbers"}, {"instruction set"}, {"instruction"}}};
  for (const measure::Peaks* peaks : columns)
    table.columns.push_back({threads_text(*peaks), "G/s", Better::none, 1});
  for (size_t i = 0; i < all.math.size(); ++i) {
    const measure::MathPeak& peak = all.math[i];
    std::vector<report::Cell> row = {std::string(kernels::to_string(peak.type)), peak.isa, peak.instruction};
    for (const measure::Peaks* peaks : columns) row.emplace_back(peaks->math.at(i).rate / 1e9);
    table.add_row(std::move(row));
    for (const measure::Peaks* peaks : columns) mark_busy_peaks(table, *peaks, threads_text(*peaks));
  }
  return table;
}

report::Table memory_table(const measure::Peaks& all, const measure::Peaks* one) {
  report::Table table{
      .title = "Bandwidth",
      .caption =
          "As STREAM counts: the bytes of the arrays, without what a cache reads before it is written "
          "to. The best of all passes.",
      .columns = {{"level"}, {"threads"}, {"size"}}};
  for (int p = 0; p < kernels::kMemoryPassCount; ++p) {
    table.columns.push_back(
        {kernels::to_string(static_cast<kernels::MemoryPass>(p)), "GB/s", Better::none, 1});
  }
  for (size_t i = 0; i < all.memory.size(); ++i) {
    for (const measure::Peaks* peaks : measured(all, one)) {
      const measure::MemoryPeak& level = peaks->memory.at(i);
      std::vector<report::Cell> row = {level.name, static_cast<double>(peaks->threads),
                                       report::format_bytes(level.bytes)};
      for (const double rate : level.rate) row.emplace_back(rate / 1e9);
      table.add_row(std::move(row));
      mark_busy_peaks(table, *peaks, "triad");
    }
  }
  return table;
}

}  // namespace ulp::app
