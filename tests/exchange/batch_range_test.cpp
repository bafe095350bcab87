// Models that compute something else at other batch sizes: right inside of the range that they were captured
// for, and refused outside of it, by the graph, its files and engines.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "captured_function.h"
#include "error_of.h"
#include "pt2_archive.h"
#include "temporary_folder.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/import_pt2.h"
#include "ulp/io/graph_file.h"
#include "ulp/lower/lower.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {
namespace {

using Module = std::shared_ptr<graph::GraphModule>;
constexpr int64_t kRows = 3;

/// Three branches: up to `few` samples, up to `many`, and more.
struct ByBatch : torch::nn::Module {
  ByBatch(int64_t few, int64_t many) : few_(few), many_(many) {
    torch::manual_seed(5);
    layer_ = register_module("layer", torch::nn::Linear(kRows, kRows));
  }
  at::Tensor forward(at::Tensor x) {
    const int64_t batch = x.size(0);
    const at::Tensor y = layer_->forward(x);
    if (batch <= few_) return y.relu();
    return batch <= many_ ? y.tanh() : y.mul(3);
  }
  int64_t few_, many_;
  torch::nn::Linear layer_ = nullptr;
};

Module captured_within(const std::shared_ptr<ByBatch>& net, const BatchRange& range, int64_t batch) {
  net->eval();
  auto module = capture(net, {torch::randn({batch, kRows})}, {.batch_range = range});
  module->eval();
  return module;
}

std::string out_of(const BatchRange& range, int64_t batch) {
  return "expected a batch of " + range.text() + ", got " + std::to_string(batch);
}

/// The model's results inside of the range; an error that names it outside.
void expect_within(graph::GraphModule& module, ByBatch& net, const BatchRange& range) {
  EXPECT_EQ(module.graph().batch_range, range);
  const int64_t last = range.max == BatchRange::kAny ? range.min + 12 : range.max + 3;
  for (int64_t batch = 1; batch <= last; ++batch) {
    const at::Tensor x = torch::randn({batch, kRows});
    if (!range.contains(batch)) {
      EXPECT_ERROR(module.forward(x), out_of(range, batch));
      continue;
    }
    EXPECT_TRUE(torch::allclose(module.forward(x), net.forward(x), 1e-5, 1e-6)) << batch;
  }
}

void expect_engine_within(runtime::Engine engine, ByBatch& net, const BatchRange& range) {
  EXPECT_EQ(engine.batch_range(), range);
  for (int64_t batch = 1; batch <= range.max + 3; ++batch) {
    const at::Tensor x = torch::randn({batch, kRows});
    at::Tensor y = torch::empty({batch, kRows});
    const void* in = x.const_data_ptr();
    void* out = y.data_ptr();
    if (range.contains(batch)) {
      engine.run(batch, {&in, 1}, {&out, 1});
      EXPECT_TRUE(torch::allclose(y, net.forward(x), 1e-4, 1e-5)) << batch;
    } else {
      EXPECT_ERROR(engine.run(batch, {&in, 1}, {&out, 1}), out_of(range, batch));
    }
  }
}

TEST(BatchRange, DrawnRangesHoldInTheGraphAndItsFiles) {
  const torch::NoGradGuard no_grad;
  const TemporaryFolder folder;
  Draw draw(11);
  for (int round = 0; round < 6; ++round) {
    const int64_t few = draw.between(3, 9), many = few + draw.between(3, 9);
    const auto net = std::make_shared<ByBatch>(few, many);
    const BatchRange ranges[] = {{.max = few}, {few + 1, many}, {.min = many + 1}};
    for (const BatchRange& range : ranges) {
      SCOPED_TRACE(range.text());
      const int64_t first = std::max<int64_t>(range.min, 1);
      const auto module = captured_within(net, range, range.max == BatchRange::kAny ? first : range.max - 2);
      expect_within(*module, *net, range);
      const std::filesystem::path pt2 = folder / "m.pt2", graph = folder / "m.graph";
      exchange::export_pt2(*module, pt2);
      // PyTorch's smallest size of 2 lets 1 pass, so that 1 is the smallest that a file can say.
      expect_within(*exchange::import_pt2(pt2), *net, range);
      io::save_graph(graph, *module);
      expect_within(*io::load_graph(graph), *net, range);
      const std::string onnx = exchange::export_onnx(*module);
      std::ofstream(folder / "m.onnx", std::ios::binary) << onnx;
      expect_within(*exchange::import_onnx(folder / "m.onnx"), *net, range);
    }
  }
}

TEST(BatchRange, EnginesHoldIt) {
  const torch::NoGradGuard no_grad;
  const TemporaryFolder folder;
  const auto net = std::make_shared<ByBatch>(3, 8);
  const BatchRange range{4, 8};
  const auto module = captured_within(net, range, 5);
  const runtime::Plan plan = lower(*module);
  expect_engine_within(runtime::Engine(plan), *net, range);
  plan.save(folder / "m.ulp");
  expect_engine_within(runtime::Engine(folder / "m.ulp"), *net, range);
  runtime::Engine engine(plan);
  EXPECT_ERROR(engine.reserve(9), out_of(range, 9));
}

/// Networks whose shapes lowering and writers ask of runs of their own.
TEST(BatchRange, HoldsWhereLoweringRunsTheModel) {
  const torch::NoGradGuard no_grad;
  struct Sequences : torch::nn::Module {
    Sequences() {
      torch::manual_seed(3);
      lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(kRows, 8).batch_first(true)));
      head = register_module("head", torch::nn::Linear(8, kRows));
    }
    at::Tensor forward(at::Tensor x) {
      const at::Tensor y = std::get<0>(lstm->forward(x.unsqueeze(1).repeat({1, 4, 1})));
      const at::Tensor hidden = torch::ones({4, 4}).triu(1).to(torch::kBool);
      const at::Tensor scores = y.matmul(y.transpose(1, 2)).masked_fill(hidden, -1e9).softmax(-1);
      const at::Tensor first = x.slice(0, 0, 6).sum();
      return x.size(0) > 8 ? head->forward(scores.matmul(y).select(1, 3)) : x * first;
    }
    torch::nn::LSTM lstm = nullptr;
    torch::nn::Linear head = nullptr;
  };
  const auto net = std::make_shared<Sequences>();
  net->eval();
  for (const BatchRange range : {BatchRange{9, 11}, BatchRange{9, 40}, BatchRange{.min = 9}}) {
    const auto module = capture(net, {torch::randn({9, kRows})}, {.batch_range = range});
    module->eval();
    runtime::Engine engine(lower(*module));
    const TemporaryFolder folder;
    exchange::export_pt2(*module, folder / "m.pt2");
    const auto from_pt2 = exchange::import_pt2(folder / "m.pt2");
    EXPECT_FALSE(exchange::export_onnx(*module).empty());
    for (const int64_t batch : {9, 10, 11}) {
      const at::Tensor x = torch::randn({batch, kRows}), expected = net->forward(x);
      at::Tensor y = torch::empty({batch, kRows});
      const void* in = x.const_data_ptr();
      void* out = y.data_ptr();
      engine.run(batch, {&in, 1}, {&out, 1});
      EXPECT_TRUE(torch::allclose(y, expected, 1e-4, 1e-5));
      EXPECT_TRUE(torch::allclose(from_pt2->forward(x), expected, 1e-4, 1e-5));
    }
    EXPECT_ERROR(from_pt2->forward(torch::randn({8, kRows})), out_of(range, 8));
  }
}

TEST(BatchRange, FilesOfOneBatchAreMadeOfOneThatItHas) {
  const TemporaryFolder folder;
  const auto net = std::make_shared<ByBatch>(3, 8);
  const BatchRange range{4, 8};
  const auto module = captured_within(net, range, 5);
  EXPECT_ERROR(exchange::export_tflite(*module, {.batch = 9}), out_of(range, 9));
  EXPECT_ERROR(exchange::export_tflite(*module, {.batch = 0}), "cannot say that the model takes 4 to 8");
  EXPECT_FALSE(exchange::export_tflite(*module, {.batch = 4}).empty());
  EXPECT_ERROR(exchange::export_coreml(*module, folder / "m.mlpackage", {.batch = 3}), out_of(range, 3));
  exchange::export_coreml(*module, folder / "m.mlpackage", {.batch = 8});
}

TEST(BatchRange, ACutThatEveryBatchIsLongerThanHasOneSize) {
  const torch::NoGradGuard no_grad;
  struct Cut : torch::nn::Module {
    at::Tensor forward(at::Tensor x) { return x.slice(0, 0, 6).sum(0); }
  };
  const auto net = std::make_shared<Cut>();
  const auto module = capture(net, {torch::randn({8, 2})}, {.batch_range = {.min = 6}});
  for (const int64_t batch : {6, 7, 40}) {
    const at::Tensor x = torch::randn({batch, 2});
    EXPECT_TRUE(torch::equal(module->forward(x), net->forward(x)));
  }
}

TEST(BatchRange, WhatCannotBeOneIsRefused) {
  const auto net = std::make_shared<ByBatch>(3, 8);
  const auto capture_at = [&](int64_t batch, BatchRange range) {
    return error_of([&] { captured_within(net, range, batch); });
  };
  EXPECT_SAYS(capture_at(3, {4, 8}), "two samples more are 4 to 8");
  EXPECT_SAYS(capture_at(7, {4, 8}), "got a batch of 7");
  EXPECT_SAYS(capture_at(4, {-1, 8}), "expected a batch_range of sizes from 0 on");
  runtime::Plan plan = lower(*captured_within(net, {4, 8}, 5));
  plan.batch_range = {8, 4};
  EXPECT_ERROR(plan.verify(), "expected a range of batch sizes, got 8 to 4");
}

TEST(BatchRange, ArchivesOfPyTorch) {
  const torch::NoGradGuard no_grad;
  const TemporaryFolder folder;
  const auto net = std::make_shared<ByBatch>(3, 8);
  exchange::export_pt2(*captured_within(net, {4, 8}, 5), folder / "m.pt2");
  const auto entries = pt2_entries(folder / "m.pt2");
  const auto read = [&](const nlohmann::json& low, const nlohmann::json& high) {
    auto changed = entries;
    nlohmann::json program = nlohmann::json::parse(changed.at("models/model.json"));
    program["range_constraints"]["s0"] = {{"min_val", low}, {"max_val", high}};
    changed["models/model.json"] = program.dump();
    write_pt2(folder / "changed.pt2", changed);
    return exchange::import_pt2(folder / "changed.pt2")->graph().batch_range;
  };
  // As PyTorch 2.13 checks them: a smallest size of 2 lets all smaller ones pass.
  EXPECT_EQ(read(2, nullptr), BatchRange());
  EXPECT_EQ(read(0, nullptr), BatchRange());
  EXPECT_EQ(read(2, 16), (BatchRange{0, 16}));
  EXPECT_EQ(read(3, nullptr), (BatchRange{.min = 3}));
  EXPECT_EQ(read(9, 11), (BatchRange{9, 11}));
  EXPECT_ERROR(read(9, 10), "batches of three sizes at least, got 9 to 10");
}

TEST(BatchRange, DamagedRangesInFilesAreRefused) {
  const TemporaryFolder folder;
  const auto module =
      captured_function([](const at::Tensor& x) { return x.relu(); }, torch::ones({2, kRows}));
  for (const std::string text : {"", "4 x", "8 4", "-1 4", "4 8 9", "x"}) {
    std::string onnx = exchange::export_onnx(*module, {.metadata = {{"ulp.batch_range", text}}});
    std::ofstream(folder / "m.onnx", std::ios::binary) << onnx;
    EXPECT_ERROR(exchange::import_onnx(folder / "m.onnx"), "'ulp.batch_range' of the metadata") << text;
  }
}

}  // namespace
}  // namespace ulp::test
