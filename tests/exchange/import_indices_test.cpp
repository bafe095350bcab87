// Indices and shapes of ONNX files: places that count from the end, ties, what is squeezed, scattered and
// cumulated.
#include <torch/torch.h>

#include "error_of.h"
#include "onnx_case.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/models/text_registry.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

namespace {

at::Tensor whole(const std::vector<int64_t>& values, const std::vector<int64_t>& sizes) {
  return torch::tensor(values, torch::kLong).view(sizes);
}

}  // namespace

TEST(ImportIndices, PlacesBelowZeroCountFromTheEndAsTheyRun) {
  torch::manual_seed(1);
  const at::Tensor table = torch::randn({4, 3}), x = torch::randn({2, 5});
  OnnxCase rows;
  rows.input("ids", {-1, 2}, at::kLong)
      .tensor("table", table)
      .node("Gather", {"table", "ids"}, {"y"})
      .output("y");
  EXPECT_TRUE(torch::equal(rows.run({whole({-1, 0, 3, -4}, {2, 2})}),
                           table.index_select(0, whole({3, 0, 3, 0}, {4})).view({2, 2, 3})));
  OnnxCase columns;
  columns.input("x", {-1, 5}).input("i", {2}, at::kLong);
  columns.node("Gather", {"x", "i"}, {"y"}, {{"axis", 1}}).output("y");
  EXPECT_TRUE(torch::equal(columns.run({x, whole({-1, -5}, {2})}), x.index_select(1, whole({4, 0}, {2}))));
}

TEST(ImportIndices, WhatWeExportReadsItsTableWithoutMore) {
  OnnxCase rows;
  rows.input("ids", {-1, 2}, at::kLong).tensor("table", torch::ones({4, 3}));
  rows.node("Gather", {"table", "ids"}, {"y"}).output("y");
  const auto count = [&](const std::string& producer) {
    return exchange::import_onnx(rows.bytes(18, producer), "model.onnx")->graph().nodes().size();
  };
  EXPECT_LT(count("ulp"), count("others"));
}

TEST(ImportIndices, OneHotCountsFromTheEndAndKeepsTypes) {
  OnnxCase file;
  file.input("x", {-1, 3}, at::kLong)
      .tensor("depth", torch::tensor(3))
      .tensor("values", torch::tensor({5, 9}));
  file.node("OneHot", {"x", "depth", "values"}, {"y"}).output("y");
  const at::Tensor y = file.run({whole({-1, -4, 3, 0, -3, 2}, {2, 3})});
  EXPECT_EQ(y.scalar_type(), torch::kLong);
  EXPECT_TRUE(
      torch::equal(y.view({6, 3}), whole({5, 5, 9, 5, 5, 5, 5, 5, 5, 9, 5, 5, 9, 5, 5, 5, 5, 9}, {6, 3})));
}

TEST(ImportIndices, AllOnesAreSqueezed) {
  const auto squeezed = [](const std::vector<int64_t>& axes, int64_t opset, bool given) {
    OnnxCase file;
    file.input("x", {2, 1, 3, 1, 4});
    if (given) file.tensor("axes", torch::tensor(axes, torch::kLong));
    file.node("Squeeze", given ? std::vector<std::string>{"x", "axes"} : std::vector<std::string>{"x"},
              {"y"});
    return file.output("y").run({torch::zeros({2, 1, 3, 1, 4})}, opset).sizes().vec();
  };
  EXPECT_EQ(squeezed({}, 17, false), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(squeezed({}, 11, false), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(squeezed({}, 17, true), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(squeezed({-2, 3}, 17, true), (std::vector<int64_t>{2, 1, 3, 4}));
}

TEST(ImportIndices, OnesAmongFreeSizesAreSqueezedByTheirAxesAlone) {
  // ONNX Runtime 1.31.1 gives [4] of [1, 4].
  OnnxCase file, named;
  file.input("x", {-1, 4}).node("Squeeze", {"x"}, {"y"}).output("y");
  EXPECT_ERROR(file.import(),
               "node 'the_Squeeze' (Squeeze): expected axes, or an input whose sizes are numbers");
  named.input("x", {-1, 1, 4}).tensor("axes", torch::tensor({int64_t{1}}));
  named.node("Squeeze", {"x", "axes"}, {"y"}).output("y");
  EXPECT_EQ(named.run({torch::zeros({1, 1, 4})}).sizes(), (std::vector<int64_t>{1, 4}));
  OnnxCase stored;
  stored.input("x", {1, 4}).node("Squeeze", {"x"}, {"y"}).output("y");
  EXPECT_EQ(stored.run({torch::zeros({1, 4})}, 18, {.free_batch = true}).sizes(), (std::vector<int64_t>{4}));
}

TEST(ImportIndices, OfEqualNumbersTheFirstComeFirst) {
  torch::manual_seed(2);
  for (int round = 0; round < 20; ++round) {
    const at::Tensor x = torch::randint(0, 4, {3, 40}).to(torch::kFloat);
    const bool largest = round % 2 == 0;
    OnnxCase file;
    file.input("x", {-1, 40}).tensor("k", torch::tensor({17}));
    file.node("TopK", {"x", "k"}, {"values", "places"}, {{"largest", largest ? 1 : 0}}).output("places");
    const at::Tensor right = std::get<1>(x.sort(/*stable=*/true, 1, largest)).narrow(1, 0, 17);
    EXPECT_TRUE(torch::equal(file.run({x}), right));
  }
  OnnxCase old;
  old.input("x", {-1, 4}).node("TopK", {"x"}, {"values", "places"}, {{"k", 2}}).output("values");
  EXPECT_TRUE(
      torch::equal(old.run({torch::tensor({{1.0F, 4.0F, 2.0F, 3.0F}})}, 9), torch::tensor({{4.0F, 3.0F}})));
}

TEST(ImportIndices, TheLastOfEqualNumbersWhereAsked) {
  OnnxCase file;
  file.input("x", {-1, 4})
      .node("ArgMax", {"x"}, {"y"}, {{"axis", 1}, {"select_last_index", 1}, {"keepdims", 0}});
  EXPECT_TRUE(
      torch::equal(file.output("y").run({torch::tensor({{1.0F, 3.0F, 3.0F, 2.0F}})}), whole({2}, {1})));
}

TEST(ImportIndices, ScattersReduceWhereAsked) {
  // Results of ONNX Runtime 1.31.1.
  const auto scattered = [](const std::string& op, const std::string& reduction) {
    const bool rows = op == "ScatterND";
    OnnxCase file;
    file.input("x", {3}).tensor("i", rows ? whole({-1, 0, 0}, {3, 1}) : whole({-1, 0, 0}, {3}));
    file.tensor("u", torch::tensor({5.0F, 6.0F, 3.0F}));
    return file.node(op, {"x", "i", "u"}, {"y"}, {{"reduction", reduction}})
        .output("y")
        .run({torch::full({3}, 2.0F)});
  };
  for (const std::string op : {"ScatterElements", "ScatterND"}) {
    EXPECT_TRUE(torch::equal(scattered(op, "add"), torch::tensor({11.0F, 2.0F, 7.0F}))) << op;
    EXPECT_TRUE(torch::equal(scattered(op, "mul"), torch::tensor({36.0F, 2.0F, 10.0F}))) << op;
    EXPECT_TRUE(torch::equal(scattered(op, "max"), torch::tensor({6.0F, 2.0F, 5.0F}))) << op;
    EXPECT_TRUE(torch::equal(scattered(op, "min"), torch::tensor({2.0F, 2.0F, 2.0F}))) << op;
  }
}

TEST(ImportIndices, ItemsOfABatchGatherAmongThemselves) {
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({2, 3, 4}), index = whole({1, 0}, {2, 1});
  OnnxCase file;
  file.input("x", {2, 3, 4})
      .tensor("i", index)
      .node("GatherND", {"x", "i"}, {"y"}, {{"batch_dims", 1}})
      .output("y");
  EXPECT_TRUE(torch::equal(file.run({x}), torch::stack({x[0][1], x[1][0]})));
}

TEST(ImportIndices, SumsFromEitherEndWithAndWithoutTheElement) {
  const at::Tensor x = torch::tensor({1.0F, 2.0F, 3.0F, 4.0F});
  const auto cumulated = [&](int64_t exclusive, int64_t reverse) {
    OnnxCase file;
    file.input("x", {4}).tensor("axis", torch::tensor(0));
    file.node("CumSum", {"x", "axis"}, {"y"}, {{"exclusive", exclusive}, {"reverse", reverse}});
    return file.output("y").run({x});
  };
  EXPECT_TRUE(torch::equal(cumulated(0, 0), torch::tensor({1.0F, 3.0F, 6.0F, 10.0F})));
  EXPECT_TRUE(torch::equal(cumulated(1, 0), torch::tensor({0.0F, 1.0F, 3.0F, 6.0F})));
  EXPECT_TRUE(torch::equal(cumulated(0, 1), torch::tensor({10.0F, 9.0F, 7.0F, 4.0F})));
  EXPECT_TRUE(torch::equal(cumulated(1, 1), torch::tensor({9.0F, 7.0F, 4.0F, 0.0F})));
}

TEST(ImportIndices, PadsThatRepeatWrapAndCut) {
  // Results of ONNX Runtime 1.31.1.
  const auto padded_by = [](const std::string& mode, const std::vector<int64_t>& pads) {
    OnnxCase file;
    file.input("x", {4}).tensor("p", torch::tensor(pads));
    return file.node("Pad", {"x", "p"}, {"y"}, {{"mode", mode}})
        .output("y")
        .run({torch::arange(4).to(torch::kFloat)}, 19);
  };
  EXPECT_TRUE(torch::equal(padded_by("reflect", {2, -1}), torch::tensor({2.0F, 1.0F, 0.0F, 1.0F, 2.0F})));
  EXPECT_TRUE(torch::equal(padded_by("edge", {2, -1}), torch::tensor({0.0F, 0.0F, 0.0F, 1.0F, 2.0F})));
  EXPECT_TRUE(torch::equal(padded_by("wrap", {2, -1}), torch::tensor({1.0F, 2.0F, 0.0F, 1.0F, 2.0F})));
  EXPECT_ERROR(padded_by("reflect", {4, 0}),
               "expected dimension 0 to be longer than its pad of 4 by reflect, got 4");
}

TEST(ImportIndices, TextNetworksOfOtherWritersRunInTheEngine) {
  torch::manual_seed(4);
  const auto model = models::make_text_model("gpt2", {.max_length = 16});
  model->eval();
  const auto module = capture(*model, {torch::ones({2, 16}, torch::kLong)});
  module->eval();
  std::string file = exchange::export_onnx(*module);
  const size_t producer = file.find("ulp");
  ASSERT_NE(producer, std::string::npos);
  file.replace(producer, 3, "abc");
  const auto theirs = exchange::import_onnx(file, "model.onnx");
  const at::Tensor ids = torch::randint(1, 90, {3, 16}), from_end = ids.clone();
  EXPECT_TRUE(torch::equal(theirs->forward(ids), module->forward(ids)));
  runtime::Engine one(lower(*module)), other(lower(*theirs));
  EXPECT_TRUE(torch::equal(run_engine_all(one, {ids})[0], run_engine_all(other, {ids})[0]));
  from_end[0][0] = -1;
  const int64_t words = module->named_parameters()["wte.weight"].size(0);
  at::Tensor from_front = ids.clone();
  from_front[0][0] = words - 1;
  EXPECT_TRUE(torch::equal(run_engine_all(other, {from_end})[0], run_engine_all(one, {from_front})[0]));
}

}  // namespace ulp::test
