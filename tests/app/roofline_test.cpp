// Rooflines of small networks, profiles and traces; times are not asserted.
#include "ulp/app/roofline/roofline.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "error_of.h"
#include "temporary_folder.h"
#include "ulp/app/bench/devices.h"
#include "ulp/app/bench/peak_tables.h"
#include "ulp/app/roofline/op_work.h"
#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lower/lower.h"

namespace ulp::app {
namespace {

using kernels::MathType;
using measure::Bound;

/// 100 G/s in f32, 200 in bf16; a cache of 1 MB with 100 GB/s, memory with 10 GB/s.
measure::Peaks made_up_machine() {
  return {
      .threads = 2,
      .isa = "avx2",
      .math = {{MathType::f32, "avx2", "vfmadd", 100e9}, {MathType::bf16, "avx512_bf16", "vdpbf16ps", 200e9}},
      .memory = {{"L2", 1e6, {100e9}}, {"memory", 1e9, {10e9}}}};
}

/// A product at half of its peak, a copy at 80 % of memory's bandwidth, one that waits, and an alias.
std::vector<ProfiledPart> made_up_parts() {
  return {{.name = "fc",
           .op = "linear",
           .kernel = "linear_f32",
           .start = 0,
           .seconds = 0.02,
           .work = {.operations = 1e9, .tensor_bytes = 1e6, .constant_bytes = 1e5}},
          {.name = "copy", .op = "move", .start = 0.02, .seconds = 0.0125, .work = {.tensor_bytes = 101e6}},
          {.name = "small",
           .op = "relu",
           .start = 0.0325,
           .seconds = 1e-3,
           .work = {.operations = 10, .tensor_bytes = 80}},
          {.name = "flat", .op = "flatten", .kernel = "none", .start = 0.0335, .seconds = 1e-8}};
}

double number_in(const report::Table& table, size_t row, const std::string& column) {
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].name == column) return std::get<double>(table.rows.at(row).at(c));
  }
  ADD_FAILURE() << "no column " << column;
  return 0;
}

std::string text_in(const report::Table& table, size_t row, const std::string& column) {
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].name == column) return std::get<std::string>(table.rows.at(row).at(c));
  }
  return "no column " + column;
}

TEST(ProfileTable, SaysWhatBoundsEachStep) {
  const report::Table table = profile_table("t", made_up_parts(), made_up_machine());
  ASSERT_EQ(table.rows.size(), 4u);
  EXPECT_EQ(text_in(table, 0, "bound"), "math");
  EXPECT_DOUBLE_EQ(number_in(table, 0, "of the bound"), 50);
  EXPECT_DOUBLE_EQ(number_in(table, 0, "G/s"), 50);
  EXPECT_EQ(text_in(table, 1, "bound"), "memory");
  EXPECT_DOUBLE_EQ(number_in(table, 1, "of the bound"), 80);
  EXPECT_DOUBLE_EQ(number_in(table, 1, "GB/s"), 101e6 / 0.0125 / 1e9);
  EXPECT_EQ(text_in(table, 2, "bound"), "latency");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(table.rows[3].back()))
      << "an alias has nothing to reach";
}

TEST(Trace, IsWhatPerfettoReads) {
  std::vector<ProfiledPart> parts = made_up_parts();
  parts[0].name = "caf\xe9 \"q\"";
  const auto json = nlohmann::json::parse(trace_json({{"a.ulp, batch 1", parts}}, made_up_machine()));
  const auto& events = json.at("traceEvents");
  ASSERT_EQ(events.size(), 2 + parts.size());
  EXPECT_EQ(events[1]["ph"], "M");
  EXPECT_EQ(events[1]["args"]["name"], "a.ulp, batch 1");
  double end = 0;
  for (size_t i = 2; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["ph"], "X");
    EXPECT_EQ(events[i]["tid"], 1);
    EXPECT_NEAR(events[i]["ts"].get<double>(), end, 1e-6) << "one after the other";
    end = events[i]["ts"].get<double>() + events[i]["dur"].get<double>();
  }
  EXPECT_EQ(events[3]["name"], "copy");
  EXPECT_EQ(events[3]["args"]["bound"], "memory");
  EXPECT_FALSE(events[5]["args"].contains("bound"));
}

TEST(RooflineReport, HasALayerForEachPointAndARoof) {
  RooflineResult result{
      .title = "made up", .peaks = made_up_machine(), .parts = made_up_parts(), .seconds = 0.0335};
  const report::Report page = roofline_report(result, {.model = "made up"});
  ASSERT_EQ(page.tables.size(), 4u);
  EXPECT_EQ(page.tables[0].title, "Bounds");
  EXPECT_EQ(page.tables[0].rows.size(), 4u);
  EXPECT_DOUBLE_EQ(number_in(page.tables[0], 3, "at the bound"), 1e3 * (0.01 + 0.01 + 80.0 / 100e9));
  EXPECT_EQ(page.tables[1].rows.size(), 3u) << "an alias is no layer";
  EXPECT_TRUE(page.tables[1].marks.empty());
  ASSERT_EQ(page.charts.size(), 1u);
  size_t points = 0, roofs = 0;
  for (const report::Series& series : page.charts[0].series) {
    if (series.joined) {
      ++roofs;
      EXPECT_LE(*std::ranges::max_element(series.y), 100);
    } else {
      points += series.x.size();
    }
  }
  EXPECT_EQ(points, 2u) << "what computes nothing has no place on the chart";
  EXPECT_EQ(roofs, 2u);
  EXPECT_EQ(report::Report::from_json(page.to_json()), page);
  EXPECT_FALSE(page.to_html().empty());
}

TEST(RooflineReport, MarksWhatCannotBe) {
  RooflineResult result{.title = "", .peaks = made_up_machine(), .parts = made_up_parts(), .seconds = 1};
  result.parts[0].seconds = 0.005;
  const report::Table layers = roofline_report(result, {}).tables[1];
  ASSERT_EQ(layers.marks.size(), 1u);
  EXPECT_EQ(layers.columns[static_cast<size_t>(layers.marks[0].column)].name, "math");
}

/// A model file and its engine.
class RooflineFiles : public ::testing::Test {
 protected:
  RooflineFiles() {
    ModelSpec spec;
    spec.name = "lenet5";
    const Network network = make_network(spec);
    save_model_file(model_, *network.module, spec);
    lower(*load_model_file(model_).graph, {.metadata = {{kModelSpecKey, spec.to_json()}}}).save(engine_);
  }
  static RooflineOptions options(const std::filesystem::path& model) {
    return {.model = model.string(), .batch = 2, .threads = 1, .runs = 1, .quick = true};
  }
  /// The products of the network's layers for one item, two operations each.
  static constexpr double kFirst = 2.0 * 6 * 28 * 28 * 25;  ///< of the first layer
  static constexpr double kProducts =
      2.0 * (6 * 28 * 28 * 25 + 16 * 10 * 10 * 150 + 400 * 120 + 120 * 84 + 84 * 10);

  static double operations(const RooflineResult& result, const std::set<std::string>& ops) {
    double sum = 0;
    for (const ProfiledPart& part : result.parts) {
      if (ops.contains(part.op)) sum += part.work.operations;
    }
    return sum;
  }

  test::TemporaryFolder folder_;
  const std::filesystem::path model_ = folder_ / "m.safetensors", engine_ = folder_ / "m.ulp";
};

TEST_F(RooflineFiles, EnginesAndModelsHaveTheSameWork) {
  const RooflineResult engine = roofline(options(engine_)), model = roofline(options(model_));
  EXPECT_EQ(operations(engine, {"conv", "linear"}), 2 * kProducts);
  EXPECT_EQ(operations(model, {"conv", "linear"}), 2 * kProducts);
  EXPECT_EQ(engine.title, engine_.string() + ", engine, batch 2");
  EXPECT_EQ(model.title, "lenet5, engine in fp32, batch 2");
  EXPECT_GT(engine.seconds, 0);
}

TEST_F(RooflineFiles, PrecisionsMultiplyTheirNumbers) {
  for (const auto& [precision, math] : {std::pair{RooflinePrecision::bf16, MathType::bf16},
                                        std::pair{RooflinePrecision::int8, MathType::int8}}) {
    RooflineOptions asked = options(model_);
    asked.precision = precision;
    double operations = 0;
    for (const ProfiledPart& part : roofline(asked).parts) {
      if (part.work.math == math) operations += part.work.operations;
    }
    // The first layer's images are f32.
    EXPECT_GE(operations, 2 * (kProducts - kFirst)) << enum_name(precision);
  }
}

TEST_F(RooflineFiles, TrainingIsThreeTimesTheForwardPass) {
  RooflineOptions asked = options(model_);
  asked.train = true;
  for (const RooflinePrecision precision : {RooflinePrecision::fp32, RooflinePrecision::bf16}) {
    asked.precision = precision;
    const RooflineResult result = roofline(asked);
    const double forward = operations(result, {"conv2d", "addmm", "linear"});
    EXPECT_EQ(forward, 2 * kProducts);
    // The first layer needs no gradient of the image.
    const double backward = operations(result, {"convolution_backward", "mm"});
    EXPECT_EQ(backward, 2 * (2 * kProducts - kFirst));
    EXPECT_EQ(result.parts.back().name, "optimizer");
    bool named = false;
    for (const ProfiledPart& part : result.parts)
      named = named || (part.kernel == "backward" && part.name.find("conv") != std::string::npos);
    EXPECT_TRUE(named) << "a backward op carries the layer's name";
  }
}

TEST_F(RooflineFiles, WhatDoesNotGoTogetherIsSaid) {
  RooflineOptions asked = options(engine_);
  asked.train = true;
  EXPECT_ERROR(roofline(asked), "a model to train");
  EXPECT_ERROR(check_roofline(options(engine_), true), "has its own");
  asked = options(model_);
  asked.train = true;
  asked.precision = RooflinePrecision::int8;
  EXPECT_ERROR(check_roofline(asked), "fp32 or bf16");
  EXPECT_THROW(roofline(options(folder_ / "none.ulp")), FileError);
  EXPECT_ERROR(roofline({.model = "resnet21"}), "resnet20, resnet50");
  EXPECT_ERROR(roofline({.model = "bert-base", .length = 513}), "at most 512 tokens");
  EXPECT_ERROR(roofline({.model = "lenet5", .length = 16}), "no length");
}

TEST_F(RooflineFiles, TextsHaveTheLengthThatIsAskedFor) {
  RooflineOptions asked = options("gpt2");
  asked.precision = RooflinePrecision::int8;
  std::vector<double> products;
  for (const int64_t length : {16, 32}) {
    asked.length = length;
    double sum = 0;
    for (const ProfiledPart& part : roofline(asked).parts)
      if (part.op == "dynamic_linear") sum += part.work.operations;
    products.push_back(sum);
  }
  // Of each of two blocks, 128 to 384, 128, 512 and back, for 2 texts; then 256 bytes to predict.
  EXPECT_EQ(products[0], 2.0 * 2 * 16 * (2 * 128 * (384 + 128 + 512 + 512) + 128 * 256));
  EXPECT_EQ(products[1], 2 * products[0]);
}

TEST(OpWork, CountsProductsOfLibTorchsOps) {
  const at::Tensor a = torch::zeros({4, 6}), b = torch::zeros({6, 8}), out = torch::zeros({4, 8});
  EXPECT_EQ(work_of({"aten::mm", {a, b}, {out}}).operations, 2 * 4 * 6 * 8);
  EXPECT_EQ(work_of({"aten::mm", {a, b}, {out}}).tensor_bytes, 4 * (24 + 48 + 32));
  EXPECT_EQ(work_of({"aten::addmm", {out[0].clone(), a, b}, {out}}).operations, 2 * 4 * 6 * 8);
  EXPECT_EQ(work_of({"aten::mm", {a, b}, {out.to(at::kBFloat16)}}).math, MathType::bf16);
  const at::Tensor q = torch::zeros({2, 3, 5, 8});
  EXPECT_EQ(work_of({"aten::scaled_dot_product_attention", {q, q, q}, {q.clone()}}).operations,
            4 * 2 * 3 * 5 * 5 * 8);
  EXPECT_EQ(work_of({"aten::scaled_dot_product_attention", {q, q, q}, {q.clone()}, true}).operations,
            4 * 2 * 3 * (1 + 2 + 3 + 4 + 5) * 8);
}

TEST(OpWork, CountsMemoryOnceAndViewsNotAtAll) {
  const at::Tensor x = torch::zeros({4, 8});
  EXPECT_EQ(work_of({"aten::t", {x}, {x.t()}}).bytes(), 0);
  EXPECT_EQ(work_of({"aten::relu_", {x}, {x}, false, true}).bytes(), 2 * 4 * 32);
  EXPECT_EQ(work_of({"aten::mul", {x, x}, {x.clone()}}).bytes(), 2 * 4 * 32);
  EXPECT_EQ(work_of({"aten::add", {x, torch::zeros({8}).expand({4, 8})}, {x.clone()}}).bytes(), 4 * (64 + 8));
  const at::Tensor table = torch::zeros({100, 8});
  EXPECT_EQ(work_of({"aten::embedding", {table, torch::zeros({4}, at::kLong)}, {x}}).bytes(), 4 * 64 + 8 * 4);
}

TEST(GpuTable, ShowsSlicesBelowTheirGpu) {
  const measure::Gpu gpu{.index = 1,
                         .name = "A100",
                         .memory_bytes = 40.0 * 1024 * 1024 * 1024,
                         .capability = 80,
                         .multiprocessors = 108,
                         .clock_hz = 1.41e9,
                         .mig = true,
                         .slices = {{.index = 2,
                                     .multiprocessors = 14,
                                     .gpu_slices = 1,
                                     .compute_slices = 1,
                                     .memory_bytes = 5.0 * 1024 * 1024 * 1024}}};
  const report::Table table = gpu_table({gpu});
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(text_in(table, 0, "GPU"), "1: A100");
  EXPECT_NEAR(number_in(table, 0, "peak"), 312, 0.5);
  EXPECT_EQ(text_in(table, 1, "GPU"), "1.2: MIG 1g.5gb");
  EXPECT_NEAR(number_in(table, 1, "peak"), 312.0 * 14 / 108, 0.1);
}

TEST(PeakTables, HaveAColumnForOneThreadAndOneForAll) {
  measure::Peaks one = made_up_machine(), all = made_up_machine();
  one.threads = 1;
  all.others = 0.4;
  const report::Table table = math_table(all, &one);
  EXPECT_EQ(table.columns.back().name, "2 threads");
  EXPECT_EQ(table.columns[table.columns.size() - 2].name, "1 thread");
  EXPECT_EQ(table.marks.size(), 2u) << "of the busy measurement";
  EXPECT_EQ(math_table(one).columns.size(), table.columns.size() - 1);
  EXPECT_EQ(memory_table(all, &one).rows.size(), 4u);
}

}  // namespace
}  // namespace ulp::app
