// Networks over rows of values, from files that say nothing of themselves.
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <fstream>

#include "npy_file.h"
#include "temporary_folder.h"
#include "ulp/app/data/data.h"
#include "ulp/app/model_io/inference_model.h"
#include "ulp/app/model_io/model_file.h"
#include "ulp/app/quantize/quantize_run.h"
#include "ulp/app/run/eval.h"
#include "ulp/base/error.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/graph/capture/capture.h"

namespace ulp::app {
namespace {

/// An ONNX file over rows of three values that tells which is the largest, and 60 rows with their classes.
struct Rows {
  test::TemporaryFolder folder;
  std::filesystem::path file = folder / "largest.onnx";
  std::string data = (folder / "x.npy").string() + "," + (folder / "y.npy").string();

  Rows() {
    torch::nn::Linear first(3, 8), last(8, 3);
    {
      const torch::NoGradGuard no_grad;
      first->weight.zero_().slice(0, 0, 3).copy_(torch::eye(3));
      first->bias.fill_(100);
      last->weight.zero_().slice(1, 0, 3).copy_(torch::eye(3));
      last->bias.zero_();
    }
    torch::nn::Sequential model(first, torch::nn::ReLU(), last);
    const auto graph = capture(model, {torch::randn({2, 3})});
    graph->eval();
    exchange::export_onnx(*graph, file);
    std::vector<float> x;
    std::vector<int64_t> y;
    for (int64_t i = 0; i < 60; ++i) {
      y.push_back(i * 7 % 3);
      for (int64_t c = 0; c < 3; ++c) x.push_back(static_cast<float>(c == y.back() ? 40 : i % 11) - 30);
    }
    std::ofstream(folder / "x.npy", std::ios::binary) << test::npy("<f4", "60, 3", test::bytes_of(x));
    std::ofstream(folder / "y.npy", std::ios::binary) << test::npy("<i8", "60,", test::bytes_of(y));
  }
};

TEST(RowsOfAForeignFile, AreReadAsTheyAre) {
  const Rows rows;
  const LoadedModel model = load_any_model_file(rows.file);
  EXPECT_TRUE(model.spec.rows);
  EXPECT_EQ(model.spec.batch_sizes(5), (std::vector<int64_t>{5, 3}));
  const auto batch = load_split(rows.data, io::Split::test, model.spec).stream({.batch = 6})->next();
  EXPECT_EQ(batch->inputs.sizes(), (std::vector<int64_t>{6, 3}));
  EXPECT_EQ(batch->inputs.max().item<float>(), 10) << "nobody said how to normalise them";
  const Trial trial = make_trial({.model = rows.file, .data = rows.data});
  EXPECT_EQ(train::evaluate(trial.forward, *trial.batches).percent(), 100);
}

TEST(RowsOfAForeignFile, OfAnotherLengthAreRefusedByName) {
  const Rows rows;
  ModelSpec spec = load_any_model_file(rows.file).spec;
  spec.in_channels = 4;
  spec.mean = spec.std = {1, 1, 1, 1};
  try {
    load_split(rows.data, io::Split::test, spec);
    ADD_FAILURE() << "expected rows of three values to be refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("expected samples of 4x1x1"), std::string::npos) << error.what();
  }
}

TEST(RowsOfAForeignFile, OfTorchScriptAreReadAsTheyAre) {
  const Rows rows;
  torch::jit::Module script("largest");
  script.define("def forward(self, x):\n  return x[:, 0:3] @ torch.eye(3)\n");
  script.save((rows.folder / "largest.pt").string());
  ModelSpec like;
  like.in_channels = 3;
  like.image_size = 1;
  like.mean.assign(3, ModelSpec{}.mean[0]);
  like.std.assign(3, ModelSpec{}.std[0]);
  const LoadedModel model = load_any_model_file(rows.folder / "largest.pt", like);
  EXPECT_TRUE(model.spec.rows);
  EXPECT_EQ(model.spec.mean, std::vector<double>(3, 0));
  EXPECT_EQ(model.spec.std, std::vector<double>(3, 1));
}

TEST(RowsOfAForeignFile, CalibrateAndStayRowsInEveryFile) {
  const Rows rows;
  const LoadedModel model = load_any_model_file(rows.file);
  QuantizeRequest request;
  request.model = "largest";
  request.captured = model.graph;
  request.mode = &find_quantize_mode("static");
  request.recipe = request.mode->default_recipe();
  request.data = load_split(rows.data, io::Split::train, model.spec);
  request.test = load_split(rows.data, io::Split::test, model.spec);
  request.metadata = {{kModelSpecKey, model.spec.to_json()}};
  const QuantizeRun run = run_quantize(request);
  EXPECT_EQ(run.outcome.accuracy->percent(), 100);
  run.plan->save(rows.folder / "largest.ulp");
  EXPECT_TRUE(load_inference_model(rows.folder / "largest.ulp", {}).spec.rows);
  save_model_file(rows.folder / "largest.safetensors", *model.graph, model.spec);
  const LoadedModel again = load_any_model_file(rows.folder / "largest.safetensors");
  EXPECT_TRUE(again.spec.rows);
  EXPECT_TRUE(torch::equal(again.forward(torch::ones({4, 3})), model.forward(torch::ones({4, 3}))));
}

TEST(RowsOfAForeignFile, TrainWithTheNormalisationOfTheData) {
  const Rows rows;
  const TaskData data = load_data(rows.data, 0);
  EXPECT_FALSE(data.spec.rows);
  const ModelSpec spec = spec_for_file(rows.file, data.spec);
  EXPECT_TRUE(spec.rows);
  EXPECT_EQ(spec.mean, data.spec.mean);
  const Network network = load_network(rows.file, spec);
  const auto batch = load_data(rows.data, 0, &spec).stream(io::Split::train, {.batch = 8})->next();
  EXPECT_EQ(network.forward(*batch).sizes(), (std::vector<int64_t>{8, 3}));
}

}  // namespace
}  // namespace ulp::app
