#include "ulp/report/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/report/count.h"
#include "tests/report/sample.h"
#include "ulp/base/error.h"

namespace ulp::report {
namespace {

constexpr const char* kHostile = "</script><img src=x onerror=\"alert('1')\">&<!--{{css}}\x1b[31m\xff";

// The page without the library inside it, whose own text is not ours to judge.
std::string own_part(const std::string& page) {
  const size_t begin = page.find("/*!\n * Chart.js");
  const size_t end = page.find("</script>", begin);
  EXPECT_NE(begin, std::string::npos);
  return page.substr(0, begin) + page.substr(end);
}

std::string error_of(const std::string& json) {
  try {
    Report::from_json(json);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Report, RoundTripsThroughJson) {
  Report report = sample_report();
  report.charts[0].x.minimum = 0;
  report.charts[0].smoothing = 0.1;
  report.tables[0].rows[0][1] = INFINITY;
  report.charts[1].series[0].y[5] = -INFINITY;
  report.tables[0].mark_last("accuracy", "busy: others took 38 %");
  EXPECT_EQ(Report::from_json(report.to_json()), report);
  EXPECT_EQ(Report::from_json(report.to_json(-1)), report);
  EXPECT_EQ(Report::from_json(Report{}.to_json()), Report{});
}

TEST(Report, KeepsNotANumberThroughJson) {
  Report report;
  report.charts = {{.series = {{.name = "s", .x = {0, 1}, .y = {NAN, 0.1}}}}};
  const Report back = Report::from_json(report.to_json());
  EXPECT_TRUE(std::isnan(back.charts[0].series[0].y[0]));
  EXPECT_EQ(back.charts[0].series[0].y[1], 0.1);
}

TEST(Report, JsonIsVersionedAndPlain) {
  const auto json = nlohmann::json::parse(sample_report().to_json());
  EXPECT_EQ(json["format"], "ulp.report");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["tables"][0]["columns"][1]["better"], "higher");
  EXPECT_EQ(json["tables"][0]["rows"][0][0], "fp32");
  EXPECT_TRUE(json["tables"][0]["rows"][2][2].is_null());
  EXPECT_EQ(json["charts"][1]["y"]["scale"], "log2");
}

TEST(Report, FromJsonNamesWhatIsWrong) {
  EXPECT_NE(error_of("{").find("does not parse"), std::string::npos);
  EXPECT_NE(error_of("[]").find("ulp.report"), std::string::npos);
  EXPECT_NE(error_of(R"({"format":"ulp.report"})").find("version"), std::string::npos);
  EXPECT_NE(error_of(R"({"format":"ulp.report","version":2})").find("got version 2"), std::string::npos);
  const std::string head = R"({"format":"ulp.report","version":1,)";
  EXPECT_NE(error_of(head + R"("title":3})").find("'title'"), std::string::npos);
  EXPECT_NE(error_of(head + R"("charts":[{"kind":"pie"}]})").find("'pie' at 'charts[0].kind'"),
            std::string::npos);
  EXPECT_NE(error_of(head + R"("charts":[{"series":[{"y":[1,"2"]}]}]})").find("charts[0].series[0].y[1]"),
            std::string::npos);
  EXPECT_NE(error_of(head + R"("tables":[{"columns":[{"decimals":1.5}]}]})").find("an integer"),
            std::string::npos);
}

TEST(Report, HtmlHoldsEverythingShown) {
  const Report report = sample_report();
  const std::string page = report.to_html();
  for (const char* part :
       {"<title>Residual network on Fashion-MNIST</title>", "24,130", "images/s", "4.63×",
        "int8 keeps the accuracy", "Ratios are taken within one run", "one cycle", "Processor"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(count(page, "<canvas"), report.charts.size());
  EXPECT_EQ(count(page, " best\""), 7u);
  EXPECT_NE(page.find("Chart.js v"), std::string::npos);
  EXPECT_EQ(own_part(page).find("{{"), std::string::npos);
}

TEST(Report, MarksStandBesideTheirValuesAndInTheJson) {
  Report report = sample_report();
  report.tables[0].mark_last("latency, batch 1", "busy: others took 38 %");
  const std::string page = report.to_html();
  EXPECT_NE(page.find("<span>0.121</span><small>busy: others took 38 %</small></td>"), std::string::npos);
  EXPECT_EQ(count(page, " best\""), 6u);
  const auto json = nlohmann::json::parse(report.to_json());
  EXPECT_EQ(json["tables"][0]["marks"][0]["text"], "busy: others took 38 %");
  EXPECT_EQ(json["tables"][0]["marks"][0]["row"], 2);
}

TEST(Report, HtmlCarriesTheWholeReportAsJson) {
  const Report report = sample_report();
  const std::string page = report.to_html();
  const std::string open = "<script type=\"application/json\" id=\"report-data\">";
  const size_t begin = page.find(open) + open.size();
  EXPECT_EQ(Report::from_json(page.substr(begin, page.find("</script>", begin) - begin)), report);
}

TEST(Report, HtmlReachesForNothingOutsideItself) {
  const std::string page = sample_report().to_html();
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);  // the browser itself refuses
  const std::string own = own_part(page);
  for (const char* part : {"http:", "https:", " src=", " href=", "url(", "@import", "<link", "<iframe",
                           "fetch(", "XMLHttpRequest", "import("}) {
    EXPECT_EQ(own.find(part), std::string::npos) << part;
  }
}

TEST(Report, HostileTextStaysText) {
  Report report = sample_report();
  report.title = report.subtitle = report.created = kHostile;
  report.headlines = {{kHostile, kHostile}};
  report.notes = {kHostile};
  report.settings = report.machine = {{kHostile, kHostile}};
  report.tables = {
      {.title = kHostile, .caption = kHostile, .columns = {{kHostile, kHostile}}, .rows = {{kHostile}}}};
  report.tables[0].marks = {{.row = 0, .column = 0, .text = kHostile}};
  for (Chart& chart : report.charts) {
    chart.title = chart.caption = chart.x.title = chart.y.unit = kHostile;
    for (Series& series : chart.series) series.name = kHostile;
    for (Band& band : chart.bands) band.label = band.detail = kHostile;
  }
  const std::string page = report.to_html();
  EXPECT_EQ(count(page, "</script>"), 3u);
  EXPECT_EQ(count(page, "<img"), 0u);
  EXPECT_EQ(count(page, "<!--"), 0u);
  EXPECT_EQ(page.find('\x1b'), std::string::npos);
  EXPECT_EQ(page.find('\xff'), std::string::npos);
  EXPECT_NE(page.find("{{css}}"), std::string::npos);  // filled in once, not read as a template again
  EXPECT_EQ(report.to_text().find('\x1b'), std::string::npos);
}

TEST(Report, RefusesAMalformedSeries) {
  Report report;
  report.charts = {{.title = "c", .series = {{.name = "s", .x = {1}, .y = {1, 2}}}}};
  EXPECT_THROW(report.to_html(), Error);
  report.charts = {{.kind = ChartKind::bars, .series = {{.name = "s", .y = {1, 2}, .labels = {"a"}}}}};
  EXPECT_THROW(report.to_html(), Error);
  report.charts = {{.kind = ChartKind::ranges, .series = {{.name = "s", .x = {1}, .y = {2}}}}};
  EXPECT_THROW(report.to_html(), Error);
}

TEST(Report, RefusesBandsOverCategories) {
  Report report;
  report.charts = {{.kind = ChartKind::bars, .bands = {{.from = 1, .to = 2}}}};
  EXPECT_THROW(report.to_html(), Error);
  report.charts[0].kind = ChartKind::line;
  EXPECT_NO_THROW(report.to_html());
}

TEST(Report, HistogramsTakeTheWholeWidth) {
  const auto wide = [](std::vector<ChartKind> kinds) {
    Report report;
    for (const ChartKind kind : kinds) report.charts.push_back({.kind = kind});
    std::vector<bool> out;
    const std::string page = report.to_html();
    for (size_t at = page.find("<figure"); at != std::string::npos; at = page.find("<figure", at + 1)) {
      out.push_back(page.compare(at, 20, "<figure class=\"wide\"") == 0);
    }
    return out;
  };
  const ChartKind line = ChartKind::line, histogram = ChartKind::histogram;
  EXPECT_EQ(wide({line, histogram, line}), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(wide({histogram, line}), (std::vector<bool>{true, true}));
  EXPECT_EQ(wide({line, line, line}), (std::vector<bool>{true, false, false}));
}

TEST(Report, FromJsonReadsBands) {
  const std::string head = R"({"format":"ulp.report","version":1,"charts":[{"bands":[)";
  const Report report = Report::from_json(head + R"({"from":null,"to":2.5,"label":"zero","warn":true}]}]})");
  EXPECT_FALSE(report.charts[0].bands[0].from);
  EXPECT_EQ(report.charts[0].bands[0].to, 2.5);
  EXPECT_TRUE(report.charts[0].bands[0].warn);
  EXPECT_NE(error_of(head + R"({"warn":1}]}]})").find("charts[0].bands[0].warn"), std::string::npos);
}

TEST(Report, WritesWholeFilesOrFails) {
  const auto folder = std::filesystem::path(testing::TempDir());
  const Report report = sample_report();
  report.write_json(folder / "ulp_report.json");
  report.write_html(folder / "ulp_report.html");
  std::ifstream json(folder / "ulp_report.json"), html(folder / "ulp_report.html");
  EXPECT_EQ(Report::from_json(std::string(std::istreambuf_iterator<char>(json), {})), report);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(html), {}), report.to_html());
  EXPECT_THROW(report.write_html(folder / "no_such_folder" / "report.html"), Error);
  std::filesystem::remove(folder / "ulp_report.json");
  std::filesystem::remove(folder / "ulp_report.html");
}

TEST(Report, TextHoldsTablesHeadlinesAndNotes) {
  const std::string text = sample_report().to_text();
  for (const char* part : {"24,130*", "int8 throughput against fp32", "- Ratios"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(Machine, KnowsItsProcessorAndVersions) {
  std::string names;
  for (const Fact& fact : machine_facts()) {
    names += fact.name + ";";
    EXPECT_FALSE(fact.value.empty()) << fact.name;
  }
  for (const char* name : {"Logical cores", "Memory", "Kernel", "Compiler", "LibTorch", "ulp"}) {
    EXPECT_NE(names.find(name), std::string::npos) << names;
  }
}

}  // namespace
}  // namespace ulp::report
