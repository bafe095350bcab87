// The comparison of precisions, in its quick size; timings are not asserted.
#include "ulp/app/bench/bench_amp.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <numeric>

#include "ulp/amp/autocast/wide_products.h"
#include "ulp/base/error.h"

namespace {

namespace measure = ulp::measure;
using namespace ulp::app;

AmpBenchOptions quick(std::vector<AmpNetwork> networks, std::vector<std::string> precisions) {
  AmpBenchOptions options;
  options.networks = std::move(networks);
  options.precisions = std::move(precisions);
  options.size = AmpSize::quick;
  options.rounds = 1;
  return options;
}

TEST(BenchAmp, EveryPrecisionLearnsAndTheSameSteps) {
  auto options = quick({AmpNetwork::feed_forward, AmpNetwork::bert}, {"fp32", "bf16", "O2:bf16"});
  options.dropout = options.attention_dropout = 0;  // masks drawn in another dtype are other masks
  const auto results = bench_amp(options);
  ASSERT_EQ(results.size(), 6u);
  for (size_t i = 0; i < results.size(); ++i) {
    const AmpResult& r = results[i];
    const AmpResult& fp32 = results[i - i % 3];
    SCOPED_TRACE(std::string(to_string(r.network)) + ", " + r.precision);
    EXPECT_EQ(r.precision, options.precisions[i % 3]);
    EXPECT_EQ(r.steps, fp32.steps);
    EXPECT_EQ(r.parameters, fp32.parameters);
    EXPECT_GT(r.seconds, 0);
    EXPECT_LE(r.fastest, r.seconds);
    EXPECT_GE(r.slowest, r.seconds);
    EXPECT_NEAR(r.first_loss, fp32.first_loss, 0.05);  // the same start; bf16 keeps 8 bits
    EXPECT_TRUE(std::isfinite(r.last_loss));
    if (r.network == AmpNetwork::feed_forward) {
      EXPECT_LT(r.last_loss, r.first_loss);
    }
    // Weights, two moments and gradients: 16 bytes a parameter in fp32, 14 with bf16 and split masters.
    const int64_t least = r.parameters * (r.precision == "O2:bf16" ? 14 : 16);
    EXPECT_GE(r.peak_bytes, least);
    EXPECT_TRUE(r.profile.empty());
  }
  EXPECT_EQ(results[0].parameters, 235146);
  // Where products in bf16 run in fp32, the operands of the one that runs are there twice: much in so small a
  // network.
  if (!ulp::amp::computes_wide(torch::kBFloat16)) EXPECT_LT(results[2].peak_bytes, results[0].peak_bytes);
}

TEST(BenchAmp, MomentsInBf16TakeFourBytesAParameterLess) {
  auto options = quick({AmpNetwork::feed_forward}, {"O2:bf16"});
  const AmpResult wide = bench_amp(options).at(0);
  options.moments = ulp::amp::MomentFormat::bf16;
  const AmpResult narrow = bench_amp(options).at(0);
  EXPECT_EQ(narrow.peak_bytes, wide.peak_bytes - 4 * wide.parameters);
  EXPECT_LT(narrow.last_loss, narrow.first_loss);
}

TEST(BenchAmp, Fp16TrainsWithItsScaler) {
  const auto results = bench_amp(quick({AmpNetwork::feed_forward}, {"fp16", "O2"}));
  ASSERT_EQ(results.size(), 2u);
  for (const AmpResult& result : results) {
    EXPECT_GT(result.steps, 3) << result.precision;
    EXPECT_LT(result.last_loss, result.first_loss) << result.precision;
  }
}

TEST(BenchAmp, TheUNetIsTheArticles) {
  torch::set_num_threads(1);
  auto options = quick({AmpNetwork::unet}, {"O2:bf16"});
  options.profile = true;
  ulp::CpuUsage now = {.processors = 4};
  options.probe = [&] {  // others take all of two processors
    now.wall += 1;
    now.all += 2;
    return now;
  };
  const auto results = bench_amp(options);
  EXPECT_EQ(results.at(0).parameters, 7'703'497);
  EXPECT_EQ(results[0].others, 0.5);
  bool convolution = false;
  for (const measure::OpTime& op : results[0].profile)
    convolution = convolution || op.op == "aten::convolution_backward";
  EXPECT_TRUE(convolution);
}

TEST(BenchAmp, NamesAndOptionsAreChecked) {
  for (AmpNetwork network : {AmpNetwork::feed_forward, AmpNetwork::unet, AmpNetwork::bert}) {
    EXPECT_EQ(find_amp_network(to_string(network)), network);
  }
  EXPECT_THROW(bench_amp(quick({AmpNetwork::feed_forward}, {"int4"})), ulp::Error);
  EXPECT_THROW(bench_amp(quick({AmpNetwork::feed_forward}, {"tf32"})), ulp::Error);
  EXPECT_THROW(find_amp_network("gpt"), ulp::Error);
  EXPECT_THROW(bench_amp(quick({}, {"fp32"})), ulp::Error);
  EXPECT_THROW(bench_amp(quick({AmpNetwork::bert}, {})), ulp::Error);
  auto options = quick({AmpNetwork::bert}, {"fp32"});
  options.rounds = 0;
  EXPECT_THROW(bench_amp(options), ulp::Error);
}

TEST(BenchAmp, TheTableHoldsTheRatiosToFp32) {
  std::vector<AmpResult> results(3);
  results[0] = {.network = AmpNetwork::unet, .seconds = 3, .peak_bytes = 1000};
  results[1] = {.network = AmpNetwork::unet, .precision = "O2:bf16", .seconds = 2, .peak_bytes = 600};
  results[2] = {.network = AmpNetwork::bert, .precision = "bf16", .seconds = 2, .peak_bytes = 600};
  results[1].profile = {{"aten::a", 1, 0.75}, {"aten::b", 3, 0.245}, {"aten::c", 9, 0.005}};
  const auto table = amp_table(results);
  const auto column = [&](const std::string& name) {
    for (size_t i = 0; i < table.columns.size(); ++i) {
      if (table.columns[i].name == name) return i;
    }
    throw std::out_of_range(name);
  };
  EXPECT_EQ(std::get<double>(table.rows[1][column("speed against fp32")]), 1.5);
  EXPECT_EQ(std::get<double>(table.rows[1][column("memory against fp32")]), 0.6);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(table.rows[2][column("speed against fp32")]));
  EXPECT_EQ(amp_profile_table(results[1]).rows.size(), 2u);
  AmpBenchOptions options;
  const auto report = amp_report(results, options);
  EXPECT_EQ(report.tables.size(), 2u);
  ASSERT_EQ(report.charts.size(), 2u);
  EXPECT_EQ(report.charts[0].series.size(), options.precisions.size());
  EXPECT_NE(report.to_html().find("Memory against fp32"), std::string::npos);
  ASSERT_EQ(report.headlines.size(), 1u);
  EXPECT_EQ(report.headlines[0].value, "1.50×");
  EXPECT_TRUE(table.marks.empty());
}

TEST(BenchAmp, TimesOfABusyMachineAreMarkedAndNoHeadlines) {
  std::vector<AmpResult> results(2);
  results[0] = {.network = AmpNetwork::unet, .seconds = 43, .others = 0.4};
  results[1] = {.network = AmpNetwork::unet, .precision = "O2:bf16", .seconds = 1, .others = 0.01};
  const auto report = amp_report(results, {});
  EXPECT_TRUE(report.headlines.empty());
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_NE(report.notes[0].find("not to be trusted"), std::string::npos);
  const auto& table = report.tables[0];
  ASSERT_EQ(table.marks.size(), 3u);  // the time of fp32 and both ratios to it
  EXPECT_EQ(table.columns[static_cast<size_t>(table.marks[0].column)].name, "step");
  EXPECT_EQ(table.marks[2].row, 1);
  EXPECT_EQ(table.marks[2].text, "busy: others took 40 %");
}

TEST(OpProfile, OwnTimesAddUpAndNestedCallsAreTakenOff) {
  torch::set_num_threads(1);
  const auto x = torch::randn({64, 64}, torch::requires_grad());
  const auto ops = measure::profile_ops([&] { torch::nn::functional::linear(x, x).relu().sum().backward(); });
  std::map<std::string, measure::OpTime> by_name;
  for (size_t i = 0; i < ops.size(); ++i) {
    by_name[ops[i].op] = ops[i];
    EXPECT_GE(ops[i].seconds, 0) << ops[i].op;
    if (i > 0) {
      EXPECT_LE(ops[i].seconds, ops[i - 1].seconds);
    }
  }
  EXPECT_EQ(by_name["aten::matmul"].calls, 1);
  EXPECT_EQ(by_name["aten::mm"].calls, 3);  // the product, and two for its gradients
  EXPECT_EQ(by_name["aten::threshold_backward"].calls, 1);
  EXPECT_EQ(by_name.count("other"), 1u);
}

TEST(OpProfile, TheObserverGoesWithAnException) {
  EXPECT_THROW(measure::profile_ops([] { throw ulp::Error("stop"); }), ulp::Error);
  const auto ops = measure::profile_ops([] {});
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_EQ(ops[0].op, "other");
}

}  // namespace
