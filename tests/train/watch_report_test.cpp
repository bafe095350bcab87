// A watched run as tables and charts.
#include "ulp/train/watch_report.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <numeric>

#include "ulp/amp/watch/watch.h"

namespace {

using namespace ulp;
using report::ChartKind;

/// Three steps: clean, skipped, clean at half the scale. Values 2^-30 to 2^-1, so that fp16 loses some.
const amp::WatchSummary& watched() {
  static torch::nn::Linear layer(30, 2);
  static amp::NumericsWatch watch(*layer, {.every = 1});
  if (!watch.summary().steps.empty()) return watch.summary();
  const at::Tensor gradient = torch::exp2(-torch::arange(1, 31)).to(at::kFloat).repeat({2, 1});
  const auto run = [&](double scale, amp::StepResult result) {
    const at::Tensor x = torch::ones({3, 30});
    layer->weight.mutable_grad() = gradient * scale;
    layer->bias.mutable_grad() = torch::zeros({2});
    if (result == amp::StepResult::skipped_nonfinite) layer->bias.mutable_grad()[1] = INFINITY;
    auto step = watch.begin_step(scale);
    (void)torch::relu(layer(x));
    step.gradients();
    step.end(result);
  };
  run(128, amp::StepResult::stepped);
  run(128, amp::StepResult::skipped_nonfinite);
  run(64, amp::StepResult::stepped);
  return watch.summary();
}

const report::Table* find(const train::WatchReport& report, const std::string& title) {
  for (const report::Table& table : report.tables) {
    if (table.title == title) return &table;
  }
  return nullptr;
}

TEST(WatchReport, Fp8TensorsAreListedWorstFirstWithTheirScales) {
  amp::WatchSummary summary = watched();
  EXPECT_EQ(find(train::watch_report(summary), "Tensors of fp8 layers"), nullptr);
  summary.fp8.push_back({.layer = "fc1",
                         .role = amp::Fp8Role::weight,
                         .format = "fp8_e4m3fn",
                         .elements = 10,
                         .nonzero = 10,
                         .flushed = 1,
                         .history = {{0, 448, 1}, {4, 224, 2}}});
  summary.fp8.push_back({.layer = "fc1",
                         .role = amp::Fp8Role::gradient,
                         .format = "fp8_e5m2",
                         .elements = 10,
                         .nonzero = 4,
                         .saturated = 2,
                         .history = {{0, 1, 3}}});
  const train::WatchReport report = train::watch_report(summary);
  const report::Table* table = find(report, "Tensors of fp8 layers");
  ASSERT_NE(table, nullptr);
  ASSERT_EQ(table->rows.size(), 2U);
  EXPECT_TRUE(table->rows[0][1] == report::Cell("gradient"));
  EXPECT_TRUE(table->rows[0][5] == report::Cell(50.0));
  EXPECT_TRUE(table->rows[1][6] == report::Cell(10.0));
  const report::Chart& chart = report.charts.back();
  EXPECT_EQ(chart.title, "Scales of fp8 tensors");
  EXPECT_EQ(chart.series[1].name, "fc1 weight");
  EXPECT_EQ(chart.series[1].y, (std::vector<double>{448, 224}));
}

TEST(WatchReport, HistogramShowsTheGradientsUnscaledAndScaled) {
  const report::Chart chart = train::gradient_chart(watched());
  EXPECT_EQ(chart.kind, ChartKind::histogram);
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_EQ(chart.series[1].name, "with loss scale 2^6");
  for (const report::Series& series : chart.series) {
    EXPECT_NEAR(std::accumulate(series.y.begin(), series.y.end(), 0.0), 100, 1e-9) << series.name;
  }
  // Scaling by 2^6 moves every bin by six.
  const auto &before = chart.series[0], &after = chart.series[1];
  ASSERT_EQ(before.x, after.x);
  for (size_t i = 0; i + 6 < before.y.size(); ++i) EXPECT_EQ(before.y[i], after.y[i + 6]) << i;
}

TEST(WatchReport, BandsMarkTheRangeOfTheFormatAndTheSharesLost) {
  const report::Chart chart = train::gradient_chart(watched());
  ASSERT_EQ(chart.bands.size(), 4u);
  EXPECT_EQ(chart.bands[0].to, std::ldexp(1.0, -25));
  EXPECT_TRUE(chart.bands[0].warn);
  // 2^-25 to 2^-30 round to zero: 6 of 30; times 2^6 none does.
  EXPECT_EQ(chart.bands[0].detail, "20 % \u2192 0 %");
  EXPECT_EQ(chart.bands[1].to, std::ldexp(1.0, -14));
  EXPECT_EQ(chart.bands[2].to, std::ldexp(1.0, 16));
  EXPECT_FALSE(chart.bands[3].to);
}

TEST(WatchReport, ScaleChartMarksSkippedSteps) {
  const auto report = train::watch_report(watched());
  ASSERT_EQ(report.charts.size(), 3u);
  const report::Chart& scale = report.charts[1];
  EXPECT_EQ(scale.series[0].y, (std::vector<double>{128, 64}));
  EXPECT_EQ(scale.series[0].x, (std::vector<double>{0, 2}));
  ASSERT_EQ(scale.bands.size(), 1u);
  EXPECT_EQ(scale.bands[0].from, 1);
  EXPECT_NE(scale.caption.find("1 of 3 steps were skipped"), std::string::npos);
  EXPECT_EQ(report.charts[2].series[0].y, (std::vector<double>{20, 20, 20}));
}

TEST(WatchReport, TablesNameCausesAndTheWorstFirst) {
  const auto report = train::watch_report(watched());
  const report::Table* skipped = find(report, "Skipped steps");
  ASSERT_NE(skipped, nullptr);
  EXPECT_EQ(std::get<double>(skipped->rows.at(0)[0]), 1);
  EXPECT_EQ(std::get<std::string>(skipped->rows.at(0)[1]), "2^7");
  EXPECT_NE(std::get<std::string>(skipped->rows.at(0)[2]).find("gradient of bias: inf at [1]"),
            std::string::npos);
  const report::Table* gradients = find(report, "Gradients in fp16");
  ASSERT_NE(gradients, nullptr);
  EXPECT_EQ(std::get<std::string>(gradients->rows.at(0)[0]), "weight");
  EXPECT_NEAR(std::get<double>(gradients->rows.at(0)[3]), 20, 1e-9);
  EXPECT_EQ(std::get<double>(gradients->rows.at(0)[4]), 0);
  const report::Table* ops = find(report, "Forward ops in fp16");
  ASSERT_NE(ops, nullptr);
  EXPECT_EQ(ops->rows.size(), 2u);  // linear and relu
  EXPECT_EQ(find(report, "Backward ops in fp16"), nullptr);
  EXPECT_EQ(train::watch_report(watched(), 1).tables.back().rows.size(), 1u);
}

TEST(WatchReport, MakesAPage) {
  const auto parts = train::watch_report(watched());
  const report::Report report{
      .title = "watch", .tables = parts.tables, .charts = parts.charts, .notes = parts.notes};
  const std::string page = report.to_html();
  EXPECT_NE(page.find("become zero"), std::string::npos);
  EXPECT_NE(page.find("gradient of bias"), std::string::npos);
  EXPECT_EQ(report::Report::from_json(report.to_json()), report);
}

TEST(WatchReport, IsEmptyBeforeTheFirstStep) {
  torch::nn::Linear layer(2, 2);
  const amp::NumericsWatch watch(*layer);
  const auto report = train::watch_report(watch.summary());
  EXPECT_TRUE(report.tables.empty());
  EXPECT_TRUE(report.charts.empty());
}

}  // namespace
