// What bench, inspect and run give for small files; times are not asserted.
#include "ulp/app/bench/bench.h"

#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <sstream>

#include "error_of.h"
#include "temporary_folder.h"
#include "ulp/app/model_io/inspect.h"
#include "ulp/app/run/run.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/graph_file.h"
#include "ulp/lower/lower.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::app {
namespace {

/// A model file and its engine.
class Files : public ::testing::Test {
 protected:
  Files() {
    ModelSpec spec;
    spec.name = "lenet5";
    const Network network = make_network(spec);
    save_model_file(model_, *network.module, spec);
    lower(*load_model_file(model_).graph, {.metadata = {{kModelSpecKey, spec.to_json()}}}).save(engine_);
  }
  BenchOptions options(double others_took) {
    BenchOptions options{.models = {model_.string(), engine_.string()}, .batches = {1, 2}, .threads = 1};
    options.measure = {.rounds = 1, .round_seconds = 0, .warmup_calls = 0, .attempts = 1};
    options.measure.probe = [others_took, now = CpuUsage{.processors = 2}]() mutable {
      now.wall += 1;
      now.all += 2 * others_took;
      return now;
    };
    return options;
  }
  test::TemporaryFolder folder_;
  const std::filesystem::path model_ = folder_ / "m.safetensors", engine_ = folder_ / "m.ulp";
};

TEST_F(Files, BenchHasARowForEachModelAndBatch) {
  BenchOptions asked = options(0.01);
  asked.profile = true;
  const auto tables = bench(asked);
  ASSERT_EQ(tables.size(), 2u);
  ASSERT_EQ(tables[0].rows.size(), 4u);
  EXPECT_EQ(std::get<std::string>(tables[0].rows[1][1]), "engine");
  EXPECT_EQ(std::get<double>(tables[0].rows[3][2]), 2);
  EXPECT_TRUE(tables[0].marks.empty());
  EXPECT_GT(tables[1].rows.size(), 3u);
}

TEST_F(Files, BenchMarksFiguresOfABusyMachine) {
  const report::Table table = bench(options(0.25)).at(0);
  ASSERT_EQ(table.columns.back().name, "others took");
  EXPECT_DOUBLE_EQ(std::get<double>(table.rows[0].back()), 25);
  ASSERT_EQ(table.marks.size(), 12u);  // time, throughput and ratio of four rows
  EXPECT_EQ(table.marks[0].text, "busy: others took 25 % (0.0 of 2 cores used)");
}

TEST_F(Files, BenchCallsEnginesFromManyThreads) {
  BenchOptions asked = options(0.01);
  asked.contexts = 3;
  const auto tables = bench(asked);
  ASSERT_EQ(tables.size(), 2u);
  const report::Table& callers = tables[1];
  EXPECT_EQ(callers.title, "Callers");
  ASSERT_EQ(callers.rows.size(), 4u);  // of the engine: one and three callers, at two batch sizes
  for (const size_t row : {1, 3}) {
    EXPECT_EQ(std::get<std::string>(callers.rows[row][0]), engine_.string());
    EXPECT_EQ(std::get<double>(callers.rows[row][2]), 3);
    for (const size_t column : {3, 4, 5, 6, 7, 8}) EXPECT_GT(std::get<double>(callers.rows[row][column]), 0);
  }
  EXPECT_GT(std::get<double>(callers.rows[3][7]), std::get<double>(callers.rows[1][7]))
      << "arenas of a batch";
  EXPECT_EQ(std::get<double>(callers.rows[3][8]), std::get<double>(callers.rows[0][8])) << "shared constants";
}

TEST_F(Files, BenchRunsModelsInPieces) {
  BenchOptions asked = options(0.01);
  asked.pieces = asked.profile = true;
  const auto tables = bench(asked);
  ASSERT_EQ(tables.size(), 3u);
  ASSERT_EQ(tables[0].rows.size(), 6u);
  EXPECT_EQ(std::get<std::string>(tables[0].rows[2][1]), "pieces");
  EXPECT_EQ(tables[2].title, model_.string() + ", batch 2, by piece");
  ASSERT_EQ(tables[2].rows.size(), 1u);
  EXPECT_EQ(std::get<std::string>(tables[2].rows[0][0]), "engine");
}

TEST_F(Files, BenchWithoutModelsOrBatchesIsAnError) {
  EXPECT_THROW(bench({}), Error);
  BenchOptions asked = options(0);
  asked.batches.clear();
  EXPECT_THROW(bench(asked), Error);
}

TEST_F(Files, InspectTellsEnginesFromModels) {
  const FileContents model = read_contents(model_), engine = read_contents(engine_);
  EXPECT_EQ(model.kind, "safetensors");
  EXPECT_FALSE(model.steps.has_value());
  EXPECT_TRUE(model.metadata.contains(kModelSpecKey));
  EXPECT_EQ(engine.kind, "engine");
  EXPECT_EQ(engine.bytes, std::filesystem::file_size(engine_));
  ASSERT_TRUE(engine.steps.has_value());
  EXPECT_EQ(engine.steps->rows.size(), runtime::Plan::load(engine_).steps.size());
  EXPECT_FALSE(engine.metadata.contains("ulp.plan"));
}

TEST_F(Files, GraphsComeFromNamesAndFiles) {
  EXPECT_TRUE(is_reference_network("lenet5"));
  EXPECT_FALSE(is_reference_network("lenet6"));
  const auto text_of = [](const std::string& what, const ModelSpec& spec) {
    std::ostringstream text;
    text << graph_of(what, spec)->graph();
    return text.str();
  };
  const std::string by_name = text_of("lenet5", {.in_channels = 3, .mean = {0, 0, 0}, .std = {1, 1, 1}});
  EXPECT_NE(by_name.find("f32[N, 3, 28, 28] = input"), std::string::npos) << by_name;
  const std::string by_file = text_of(model_.string(), {});
  EXPECT_NE(by_file.find("f32[N, 1, 28, 28] = input"), std::string::npos) << by_file;
  EXPECT_NE(by_file.find("aten::conv2d"), std::string::npos) << by_file;
}

TEST_F(Files, RunTakesRandomNumbersOrAFile) {
  const auto random = run_file({.model = engine_.string(), .count = 3, .threads = 1});
  ASSERT_EQ(random.size(), 1u);
  EXPECT_EQ(random[0].value.sizes(), (std::vector<int64_t>{3, 10}));
  torch::manual_seed(0);
  save_outputs(folder_ / "x.safetensors", {{"any name", torch::randn({3, 1, 28, 28})}});
  const auto read =
      run_file({.model = engine_.string(), .input = (folder_ / "x.safetensors").string(), .threads = 1});
  EXPECT_TRUE(torch::equal(read.at(0).value, random[0].value));
}

TEST_F(Files, RunLowersModelsAndRunsUnknownOpsInPieces) {
  const auto engine = run_file({.model = engine_.string(), .count = 3, .threads = 1});
  for (const bool pieces : {false, true}) {
    const auto model = run_file({.model = model_.string(), .pieces = pieces, .count = 3, .threads = 1});
    EXPECT_TRUE(torch::equal(model.at(0).value, engine.at(0).value));
  }
  EXPECT_THROW(run_file({.model = engine_.string(), .pieces = true}), Error);

  torch::jit::Module script("Script");
  script.define("def forward(self, x):\n  return torch.erfinv(torch.tanh(x)).flatten(1)\n");
  const auto file = (folder_ / "script.pt").string();
  script.save(file);
  RunOptions options{.model = file, .count = 2};
  options.script_spec.image_size = 4;
  EXPECT_SAYS(test::error_of([&] { run_file(options); }), "aten::erfinv");
  options.pieces = true;
  const at::Tensor got = run_file(options).at(0).value;
  torch::manual_seed(0);
  const at::Tensor expected = script.forward({torch::randn({2, 1, 4, 4})}).toTensor();
  EXPECT_TRUE(torch::allclose(got, expected));
}

TEST_F(Files, RunTakesFreeDimensionsInPieces) {
  struct Odd : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) {
      return torch::erfinv(torch::tanh(x) * 0.5) * x.size(1) + x.mean(1, true);
    }
  };
  auto net = std::make_shared<Odd>();
  const auto graph = capture(net, std::vector{torch::randn({2, 9})}, {.free = {{0, 1, "length", 12, 2}}});
  RunOptions options{.model = (folder_ / "odd.safetensors").string(),
                     .pieces = true,
                     .count = 3,
                     .max_measuring_seconds = 0};
  io::save_graph(options.model, *graph);
  EXPECT_EQ(run_file(options).at(0).value.sizes(), (std::vector<int64_t>{3, 12})) << "random: the largest";
  options.input = (folder_ / "x.safetensors").string();
  const at::Tensor x = torch::randn({2, 5});
  save_outputs(options.input, {{"x", x}});
  EXPECT_TRUE(torch::allclose(run_file(options).at(0).value, graph->forward(x)));
  save_outputs(options.input, {{"x", torch::randn({2, 13})}});
  EXPECT_SAYS(test::error_of([&] { run_file(options); }), "'length' to be 2 to 12, got 13");
}

TEST_F(Files, RunRefusesNonfiniteNumbersUnlessAllowed) {
  const auto file = (folder_ / "nan.safetensors").string();
  save_outputs(file, {{"x", torch::full({1, 1, 28, 28}, NAN)}});
  RunOptions options{.model = engine_.string(), .input = file, .threads = 1};
  EXPECT_THROW(run_file(options), FileError);
  options.allow_nonfinite = true;
  EXPECT_EQ(run_file(options).size(), 1u);
}

TEST(TopClasses, AreTheLargestOfEachRowOfAMatrix) {
  const auto top = top_classes(torch::tensor({{1.0f, 3.0f}, {2.0f, 0.5f}}));
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top[0].index, 1);
  EXPECT_EQ(top[0].value, 3);
  EXPECT_EQ(top[1].index, 0);
  EXPECT_TRUE(top_classes(torch::zeros({2, 2, 2})).empty());
}

}  // namespace
}  // namespace ulp::app
