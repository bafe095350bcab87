// What the demo says before and after its work, on made-up figures.
#include <gtest/gtest.h>

#include "ulp/app/demo/demo_parts.h"
#include "ulp/measure/interference.h"

namespace ulp::app {
namespace {

TrainingRun run(const std::string& precision, std::vector<Epoch> epochs) {
  TrainingRun result;
  result.precision = precision;
  result.step = result.loss = result.scale = {1, 2};
  result.epochs = std::move(epochs);
  return result;
}

Variant variant(const std::string& name, double throughput, std::optional<double> others) {
  Variant result;
  result.name = name;
  result.accuracy = train::Accuracy{.correct = 9, .total = 10};
  result.file_bytes = 1000;
  result.single = {.median = 0.001, .others = 0.01};
  result.batched = {.median = static_cast<double>(kThroughputBatch) / throughput, .others = others};
  return result;
}

/// LibTorch's figure is 43 times slower than int8's; others took `others` while it was measured.
report::Report report_of(std::optional<double> others, std::vector<Epoch> fp32_epochs = {{40, 0.0}}) {
  const std::vector<TrainingRun> runs = {run("fp32", std::move(fp32_epochs)), run("bf16", {{20, 0.0}}),
                                         run("fp16", {{5, 0.0}})};
  std::vector<Variant> variants = {variant("LibTorch fp32", 100, others), variant("engine fp32", 4000, 0.01),
                                   variant("engine int8", 4300, 0.01)};
  variants[0].epoch = runs[0].epoch();
  return make_report(runs, variants, {}, 60);
}

std::string headlines_of(const report::Report& report) {
  std::string text;
  for (const report::Headline& line : report.headlines) text += line.value + " " + line.label + "\n";
  return text;
}

TEST(DemoReport, OnAQuietMachineTheSpeedsAreHeadlines) {
  const report::Report report = report_of(0.02);
  const std::string lines = headlines_of(report);
  EXPECT_NE(lines.find("43.0×"), std::string::npos) << lines;
  EXPECT_NE(lines.find("2.00×"), std::string::npos) << lines;
  EXPECT_EQ(lines.find("busy"), std::string::npos) << lines;
  EXPECT_TRUE(report.tables[0].marks.empty());
}

TEST(DemoReport, ADisturbedSpeedIsMarkedAndNeverAHeadline) {
  const report::Report report = report_of(0.38);
  const std::string lines = headlines_of(report);
  EXPECT_EQ(lines.find("43"), std::string::npos) << lines;
  EXPECT_NE(lines.find("busy other programs took up to 38 %"), std::string::npos) << lines;
  EXPECT_NE(lines.find("2.00×"), std::string::npos) << "training was quiet: " << lines;
  // The throughput, and every ratio to it.
  ASSERT_EQ(report.tables[0].marks.size(), 4u);
  const std::string text = report.to_text({.unicode = false}), page = report.to_html();
  EXPECT_NE(text.find("100!"), std::string::npos) << text;
  EXPECT_NE(text.find("! busy: others took 38 %"), std::string::npos) << text;
  EXPECT_NE(text.find("run the demo again on a quiet machine"), std::string::npos) << text;
  EXPECT_NE(page.find("<small>busy: others took 38 %</small>"), std::string::npos);
}

TEST(DemoReport, EveryRowShowsTheShareOfOthers) {
  const report::Table table = report_of(0.38).tables[0];
  ASSERT_EQ(table.columns.back().name, "others took");
  EXPECT_DOUBLE_EQ(std::get<double>(table.rows[0].back()), 38);
  EXPECT_DOUBLE_EQ(std::get<double>(table.rows[1].back()), 1);
}

TEST(DemoReport, ADisturbedTrainingIsNoHeadlineEither) {
  const report::Report report = report_of(0.0, {{400, 0.5}});
  const std::string lines = headlines_of(report);
  EXPECT_EQ(lines.find("training speed"), std::string::npos) << lines;
  EXPECT_NE(lines.find("busy"), std::string::npos) << lines;
  EXPECT_NE(lines.find("43.0×"), std::string::npos) << lines;
}

TEST(TrainingRun, DisturbedEpochsDoNotCountWhereThereAreQuietOnes) {
  const Epoch epoch = run("fp32", {{90, 0.5}, {42, 0.01}, {40, 0.02}}).epoch();
  EXPECT_DOUBLE_EQ(epoch.seconds, 41);
  EXPECT_DOUBLE_EQ(*epoch.others, 0.02);
  const Epoch busy = run("fp32", {{90, 0.5}, {80, 0.4}, {85, 0.3}}).epoch();
  EXPECT_DOUBLE_EQ(busy.seconds, 85);
  EXPECT_DOUBLE_EQ(*busy.others, 0.5);
  EXPECT_EQ(run("fp32", {{3, std::nullopt}}).epoch().others, std::nullopt);
}

TEST(DemoPlan, SaysEachPartAndTheWholeTime) {
  const std::string text = describe(demo_parts({}, 2), 2);
  EXPECT_NE(text.find("on 2 cores, about 5 min in all"), std::string::npos) << text;
  for (const char* part : {"fp32, 3 epochs", "bf16, 3 epochs", "fp16", "int8", "evaluate", "measure speed"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(DemoPlan, MoreCoresTakeLessTimeAndAQuickRunLessThanAMinute) {
  const auto total = [](const std::vector<DemoPart>& parts) {
    double sum = 0;
    for (const DemoPart& part : parts) sum += *part.seconds;
    return sum;
  };
  EXPECT_LT(total(demo_parts({}, 16)), total(demo_parts({}, 4)));
  EXPECT_GT(total(demo_parts({}, 16)), 22) << "measuring takes as long on every machine";
  DemoOptions quick;
  quick.quick = true;
  EXPECT_LT(total(demo_parts(quick, 2)), 60);
}

TEST(DemoPlan, OtherNetworksAreNotEstimated) {
  DemoOptions options;
  options.model = "resnet20";
  const auto parts = demo_parts(options, 2);
  EXPECT_EQ(parts[0].seconds, std::nullopt);
  EXPECT_EQ(describe(parts, 2).find("in all"), std::string::npos);
}

}  // namespace
}  // namespace ulp::app
