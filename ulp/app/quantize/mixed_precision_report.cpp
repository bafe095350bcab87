// What a search for bits of weights found, as tables and a chart.
#include <algorithm>

#include "ulp/app/quantize/quantize_report.h"

namespace ulp::app {

namespace {

using report::Better;
using report::Cell;
using report::Chart;
using report::ChartKind;
using report::Series;
using report::Table;

constexpr double kBytesOfKiB = 1024;
constexpr size_t kMostPoints = 200;

double in_kib(int64_t bytes) {
  return static_cast<double>(bytes) / kBytesOfKiB;
}

void add_point(Series& series, const quant::MeasuredMix& mix) {
  series.x.push_back(in_kib(mix.bytes));
  series.y.push_back(mix.loss);
  series.labels.push_back(mix.name);
}

}  // namespace

Table measured_table(const quant::MixedPrecision& search) {
  Table table{.title = "Single recipes and mixes",
              .caption = "Each was made and measured; estimates add up what weights cost alone.",
              .columns = {{"weights as"},
                          {"size", "KiB", Better::none, 1},
                          {"estimate", "", Better::none, 5},
                          {"loss", "", Better::none, 5},
                          {"against float", "", Better::none, 5},
                          {"result"}},
              .rows = {}};
  for (size_t i = 0; i < search.measured.size(); ++i) {
    const quant::MeasuredMix& mix = search.measured[i];
    table.add_row({mix.name, in_kib(mix.bytes), mix.estimate ? Cell(*mix.estimate) : Cell(), mix.loss,
                   mix.loss - search.float_loss, i == search.chosen ? Cell("this one") : Cell()});
  }
  return table;
}

Table bits_table(const quant::MixedPrecision& search) {
  Table table{.title = "Bits of each weight",
              .caption = "What each weight alone adds to the loss of the float model as each candidate.",
              .columns = {{"layer"}, {"weight"}, {"result"}},
              .rows = {}};
  // The single recipes come first, one for each candidate.
  const size_t candidates = search.layers.empty() ? 0 : search.layers.front().loss.size();
  for (size_t k = 0; k < candidates; ++k)
    table.columns.push_back({k < search.measured.size() ? search.measured[k].name : "", "", Better::none, 6});
  for (const quant::WeightSensitivity& layer : search.layers) {
    std::vector<Cell> cells = {layer.layer, layer.weight, layer.chosen};
    for (const double loss : layer.loss) cells.emplace_back(loss);
    table.add_row(std::move(cells));
  }
  return table;
}

Chart front_chart(const quant::MixedPrecision& search) {
  Chart chart{.kind = ChartKind::scatter,
              .title = "Loss against size",
              .caption = "The line is the front that adds up what weights cost alone; points were measured.",
              .x = {.title = "size of the weights", .unit = "KiB", .better = Better::lower},
              .y = {.title = "loss", .better = Better::lower},
              .series = {},
              .bands = {}};
  Series front{.name = "front, estimated", .joined = true};
  const size_t step = std::max<size_t>(1, search.front_bytes.size() / kMostPoints);
  for (size_t i = 0; i < search.front_bytes.size(); i += step) {
    front.x.push_back(in_kib(search.front_bytes[i]));
    front.y.push_back(search.front_loss[i]);
  }
  Series singles{.name = "single recipes"}, mixes{.name = "mixes"}, result{.name = "result"};
  for (size_t i = 0; i < search.measured.size(); ++i) {
    const quant::MeasuredMix& mix = search.measured[i];
    add_point(i == search.chosen ? result : mix.estimate ? mixes : singles, mix);
  }
  for (Series* series : {&front, &singles, &mixes, &result}) {
    if (!series->x.empty()) chart.series.push_back(std::move(*series));
  }
  return chart;
}

}  // namespace ulp::app
