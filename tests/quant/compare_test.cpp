#include "ulp/quant/analysis/compare.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "error_of.h"
#include "residual_net.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/quantize.h"

namespace ulp::quant {
namespace {

using test::data;
using test::make_net;
using test::Net;

std::shared_ptr<graph::GraphModule> quantized(const std::shared_ptr<graph::GraphModule>& captured,
                                              const Recipe& recipe = Recipe::x86_int8()) {
  const at::NoGradGuard no_grad;
  const auto prepared = prepare(captured, recipe);
  for (uint64_t seed = 1; seed <= 3; ++seed) prepared->forward(data(seed, 16));
  return convert(prepared);
}

const ValueComparison* find(const std::vector<ValueComparison>& rows, const std::string& layer,
                            const std::string& op) {
  for (const ValueComparison& row : rows) {
    if (row.layer == layer && row.op == op) return &row;
  }
  return nullptr;
}

TEST(Compare, LastRowIsTheErrorOfTheModelsResult) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  const auto converted = quantized(captured);
  const at::Tensor x = data(40, 8);
  const std::vector<ValueComparison> rows = compare(*captured, *converted, {x});
  const at::NoGradGuard no_grad;
  captured->eval();
  const QuantError expected = quantization_error(captured->forward(x), converted->forward(x));
  const ValueComparison* fc = find(rows, "fc", "aten::linear");
  ASSERT_NE(fc, nullptr);
  EXPECT_FALSE(fc->quantized);
  EXPECT_NEAR(fc->error.sqnr_db, expected.sqnr_db, 1e-3);
  EXPECT_NEAR(fc->error.max_abs, expected.max_abs, 1e-4);
}

TEST(Compare, ListsInputAndLayersInOrderByModulePath) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  const auto rows = compare(*captured, *quantized(captured), {data(40, 8)});
  ASSERT_EQ(rows.front().op, "input");
  EXPECT_TRUE(rows.front().quantized);
  // Rounded once, to the nearest of 255 steps of its range.
  EXPECT_GT(rows.front().error.sqnr_db, 30.0);
  std::vector<std::string> layers;
  for (const auto& row : rows) {
    if (row.op == "aten::conv2d" || row.op == "aten::linear") layers.push_back(row.layer);
  }
  EXPECT_EQ(layers, (std::vector<std::string>{"stem", "block1.conv1", "block1.conv2", "block2.conv1",
                                              "block2.conv2", "block2.down", "fc"}));
  for (const auto& row : rows) EXPECT_GT(row.error.cosine, 0.99) << row.layer << ' ' << row.value;
}

TEST(Compare, ALayerThatIsDamagedIsWhereTheErrorBegins) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  Recipe coarse = Recipe::x86_int8();
  TensorRecipe two_bits = coarse.weight;
  two_bits.scheme.bits = 2;
  coarse.overrides.push_back(
      {.op = {}, .module = "block2.conv1", .value = {}, .activation = {}, .weight = two_bits});
  const auto rows = compare(*captured, *quantized(captured, coarse), {data(40, 8)});
  EXPECT_GT(find(rows, "block1.conv2", "aten::conv2d")->error.sqnr_db, 25.0);
  EXPECT_LT(find(rows, "block2.conv1", "aten::conv2d")->error.sqnr_db, 12.0);
}

TEST(Compare, ReadsWhatTrainingMade) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  const auto qat = prepare_qat(captured, Recipe::x86_int8());
  {
    const at::NoGradGuard no_grad;
    qat->forward(data(1, 8));
  }
  const auto converted = convert_qat(qat);
  const auto rows = compare(*captured, *converted, {data(40, 8)});
  EXPECT_GT(find(rows, "fc", "aten::linear")->error.sqnr_db, 15.0);
}

TEST(Compare, ErrorsNameTheLayer) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  const auto converted = quantized(captured);
  at::Tensor x = data(40, 2);
  x[0][0][0][0] = NAN;
  EXPECT_ERROR(compare(*captured, *converted, {x}), "'input'");
  EXPECT_ERROR(compare(*captured, *converted, {}), "input");
}

}  // namespace
}  // namespace ulp::quant
